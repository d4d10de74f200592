"""The micro batch of published runs that name none: whoever publishes a speed has looked for a fast one."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.prediction.published_plans import MICRO_OF_ONE, Planned, planned
from benchmarks.prediction.published_rows import Row
from llmexp.training.plan.fit import fit_of
from llmexp.training.predict import unpredicted
from llmexp.training.predict.rates import constants

FASTEST = "the fastest micro batch that fits"


def planned_as_run(row: Row) -> Planned:
    """Plan a row; one that names its batch, but no micro batch, has the fastest power of two that surely fits."""
    if row.micro_batch is not None or row.global_batch is None:
        return planned(row)
    tried = [planned(replace(row, micro_batch=micro)) for micro in _powers_of_two(row.global_batch // row.replicas)]
    fitting = [one for one in tried if _fits(one)]
    if not fitting:
        return planned(row)
    fastest = min(fitting, key=lambda one: one.cell.evidence(constants()).predicted_s({}))
    assumed = (*(words for words in planned(row).assumed if words != MICRO_OF_ONE), FASTEST)
    return replace(fastest, row=row, assumed=assumed)


def _powers_of_two(samples: int) -> list[int]:
    """Return the powers of two that divide a replica's samples of a step."""
    return [1 << power for power in range(samples.bit_length()) if samples % (1 << power) == 0]


def _fits(one: Planned) -> bool:
    fit = fit_of(one.plan, one.plan.batch.micro) if one.plan and not unpredicted(one.plan) else None
    return fit is not None and fit.verdict == "yes"
