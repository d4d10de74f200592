"""What makes a training fit that does not: the smallest changes of its method or its batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmexp.errors import ConfigError
from llmexp.launch.preflight import certain_skip
from llmexp.training.advice.methods import joined
from llmexp.training.plan.fit import fit_of, largest_micro
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.planning import plan_training

_SHARDING = ("Z1", "Z2", "Z3", "O")
# From what costs least time to what costs most.
_ADDED = (("F",), ("R",), ("Z1",), ("Z2",), ("Z3",), ("F", "R"), ("R", "Z1"), ("R", "Z2"), ("R", "Z3"))
_OFFLOADED = (("Z2", "O"), ("Z3", "O"), ("R", "Z3", "O"), ("F", "R", "Z3", "O"))
MOST = 3


def fitting(plan: TrainingPlan) -> Sequence[str]:
    """Return changes, each of which makes the plan fit for sure: atoms such as R, or batch.micro=2.

    Of those of the method, the ones with fewest atoms. Empty where none is known.
    """
    if plan.predicted is None and plan.skip:
        return []
    found: list[tuple[str, ...]] = []
    for added, method in _methods(plan):
        if found and len(added) > len(found[0]):
            break
        if _fits(plan, method):
            found.append(added)
    batch = largest_micro(plan) or 0
    smaller = [f"batch.micro={batch}"] if batch < plan.batch.micro and _fits_with(plan, batch) else []
    return ["+".join(added) for added in found[:MOST]] + smaller


def _methods(plan: TrainingPlan) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the atoms that are added with the whole method; another Z takes the place of the plan's."""
    codes = plan.atom_codes
    for added in (*_ADDED, *_OFFLOADED):
        new = tuple(code for code in added if code not in codes)
        kept = [code for code in codes if code not in _SHARDING or not {*added} & {*_SHARDING}]
        if new == added:
            yield added, joined(*kept, *added)


def _fits(plan: TrainingPlan, method: str) -> bool:
    try:
        other = plan_training(plan.config.model_copy(update={"method": method}))
    except ConfigError:
        return False
    return other.skip is None and certain_skip(other) is None and _fits_with(other, other.batch.micro)


def _fits_with(plan: TrainingPlan, micro: int) -> bool:
    fit = fit_of(plan, micro)
    return fit is not None and fit.verdict == "yes"
