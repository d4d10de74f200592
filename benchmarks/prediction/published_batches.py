"""What published runs do not name: whoever publishes a speed has looked for a fast micro batch and a short bubble."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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

    That is a power of two as micro batch where it names its batch, and the stages of a rank where they interleave.
    """
    silent = {FASTEST_MICRO: _names_batch_alone(row), FASTEST_STAGES: _names_schedule_alone(row)}
    if not any(silent.values()):
        return planned(row)
    fitting = [one for one in map(planned, _rows_of(row)) if _fits(one)]
    if not fitting:
        return planned(row)
    fastest = min(fitting, key=lambda one: one.cell.evidence(constants()).predicted_s({}))
    known = (words for words in fastest.assumed if words != MICRO_OF_ONE)
    return replace(fastest, row=row, assumed=(*known, *(words for words, is_silent in silent.items() if is_silent)))


def _names_batch_alone(row: Row) -> bool:
    return row.micro_batch is None and row.global_batch is not None


def _names_schedule_alone(row: Row) -> bool:
    return row.schedule == _INTERLEAVED and row.virtual_stages is None


def _rows_of(row: Row) -> Iterator[Row]:
    """Yield the row with each micro batch and each number of virtual stages that it may have had."""
    micros = _powers_of_two(row.global_batch // row.replicas) if _names_batch_alone(row) else [row.micro_batch]
    stages = _shared_out(row) if _names_schedule_alone(row) else [row.virtual_stages]
    return (replace(row, micro_batch=micro, virtual_stages=each) for micro in micros for each in stages)


def _powers_of_two(samples: int) -> list[int]:
    """Return the powers of two that divide a replica's samples of a step."""
    return [1 << power for power in range(samples.bit_length()) if samples % (1 << power) == 0]


def _shared_out(row: Row) -> list[int | None]:
    """Return the numbers of stages that share out all layers, or all with embedding and head; one does not interleave.

    A plan refuses those that do not suit it.
    """
    layers = row.layers or 0
    return [each for each in sorted({*virtual_stages(layers, row.pp), *virtual_stages(layers + 2, row.pp)}) if each > 1]


def _fits(one: Planned) -> bool:
    fit = fit_of(one.plan, one.plan.batch.micro) if one.plan and not unpredicted(one.plan) else None
    return fit is not None and fit.verdict == "yes"
