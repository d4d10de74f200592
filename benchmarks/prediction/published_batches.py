"""What published runs do not name: whoever publishes a speed has looked for a fast micro batch and a short bubble.

And the run fitted: what its source does not speak of saves memory where it could not have run without.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.prediction.published_fits import TO_FIT, least_fit, rows_that_may_fit
from benchmarks.prediction.published_plans import MICRO_OF_ONE, Planned, planned
from benchmarks.prediction.published_rows import Row
from llmexp.training.advice.layouts import virtual_stages
from llmexp.training.plan.fit import fit_of
from llmexp.training.predict import unpredicted
from llmexp.training.predict.rates import constants

FASTEST_MICRO, FASTEST_STAGES = "the fastest micro batch that fits", "the fastest number of virtual stages that fits"
_INTERLEAVED = "interleaved"


def planned_as_run(row: Row) -> Planned:
    """Plan a row, with the fastest that surely fits of what it does not name.

    That is a power of two as micro batch where it names its batch, and the stages of a rank where they interleave. What
    surely does not fit is planned with the least that makes it fit, of what its source does not speak of.
    """
    made = _fastest(row)
    if not _cannot_fit(made):
        return made
    others = (_fastest(each) for each in rows_that_may_fit(row))
    found = next((one for one in others if one.plan and not _cannot_fit(one)), None)
    return replace(found, row=row, assumed=(*found.assumed, TO_FIT)) if found else made


def _cannot_fit(made: Planned) -> bool:
    fit = least_fit(made) if made.plan else None
    return fit is not None and fit.verdict == "no"


def _fastest(row: Row) -> Planned:
    micros, stages = _micros(row), _stages(row)
    silent = {FASTEST_MICRO: micros != [row.micro_batch], FASTEST_STAGES: stages != [row.virtual_stages]}
    if not any(silent.values()):
        return planned(row)
    rows = (replace(row, micro_batch=micro, virtual_stages=each) for micro in micros for each in stages)
    fitting = [one for one in map(planned, rows) if _fits(one)]
    if not fitting:
        return planned(row)
    fastest = min(fitting, key=lambda one: one.cell.evidence(constants()).predicted_s({}))
    known = (words for words in fastest.assumed if words != MICRO_OF_ONE)
    return replace(fastest, row=row, assumed=(*known, *(words for words, is_silent in silent.items() if is_silent)))


def _micros(row: Row) -> list[int | None]:
    """Return the micro batch; without one, the powers of two that divide a replica's samples of a step, if known."""
    if row.micro_batch is not None or row.global_batch is None:
        return [row.micro_batch]
    samples = row.global_batch // row.replicas
    return [1 << power for power in range(samples.bit_length()) if samples % (1 << power) == 0]


def _stages(row: Row) -> list[int | None]:
    """Return the virtual stages, or where a schedule alone is known all that share out layers, also with both ends.

    A plan refuses those that do not suit it.
    """
    if row.schedule != _INTERLEAVED or row.virtual_stages is not None:
        return [row.virtual_stages]
    layers = row.layers or 0
    return [each for each in sorted({*virtual_stages(layers, row.pp), *virtual_stages(layers + 2, row.pp)}) if each > 1]


def _fits(one: Planned) -> bool:
    fit = fit_of(one.plan, one.plan.batch.micro) if one.plan and not unpredicted(one.plan) else None
    return fit is not None and fit.verdict == "yes"
