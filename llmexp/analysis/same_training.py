"""A verdict whether two runs that were asked for the same training did the same.

docs/numbers.md has the limits, which are what layouts and library versions were seen to differ by, and
`python -m benchmarks trust` says how often they err.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isnan
from typing import Final, Literal, TypeGuard

from llmexp.dtypes import format_of
from llmexp.record.trained import TrainedRun

SAME: Final = "same"
DIFFERENT: Final = "different"
UNKNOWN: Final = "unknown"
# The tolerated factor between the first step's largest updates, of which ranks sample different elements.
UPDATES_WITHIN = 4.0
Answer = Literal["same", "different", "unknown"]


@dataclass(frozen=True)
class Sameness:
    """The answer with its reason, and the largest difference of a step's losses as a share, where both have some."""

    answer: Answer
    reason: str = ""
    losses_apart: float | None = None


def is_another(found: Sameness | None) -> TypeGuard[Sameness]:
    """Tell whether runs that were asked for the same training are known to have done another."""
    return found is not None and found.answer == DIFFERENT


def asked_otherwise(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the settings in which two runs were asked for another training, each with both values."""
    keys = dict.fromkeys([*one, *other])
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}


def same_training(one: TrainedRun | None, other: TrainedRun | None) -> Sameness:
    """Judge two runs that were asked for the same training."""
    if one is None or other is None:
        return Sameness(UNKNOWN, "nothing is known of one run's training")
    apart = _losses_apart(one, other)
    if reason := _why_different(one, other, apart):
        return Sameness(DIFFERENT, reason, apart)
    return Sameness(UNKNOWN if (doubt := _why_unknown(one, other)) else SAME, doubt, apart)


def where_asked(one: TrainedRun | None, other: TrainedRun | None) -> Sameness | None:
    """Judge two runs; None where neither is a training, or where they were not asked for the same one."""
    if one is None and other is None:
        return None
    if one and other and one.requested != other.requested:
        return None
    return same_training(one, other)


def _why_different(one: TrainedRun, other: TrainedRun, apart: float | None) -> str:
    """Say what shows that they did not do the same; empty where nothing does."""
    if one.draws or other.draws:
        return _why_no_update(one, other)
    for step, (ours, theirs) in enumerate(zip(one.sequences, other.sequences, strict=False)):
        if ours != theirs:
            return f"step {step} read other sequences"
    if one.products_in and other.products_in and one.products_in != other.products_in:
        return f"matrix products ran in {one.products_in} and {other.products_in}"
    if apart is not None and apart > format_of(one.parameters_in).losses_within:
        return f"the losses of the first steps are up to {apart:.2%} apart"
    return _why_no_update(one, other) or _why_other_gradients(one, other)


def _why_no_update(one: TrainedRun, other: TrainedRun) -> str:
    ours, theirs = one.largest_update, other.largest_update
    limit = (
        format_of(one.parameters_in).adamw_within if one.requested.get("optimizer.name") == "adamw" else UPDATES_WITHIN
    )
    if ours is None or theirs is None or max(ours, theirs) <= limit * min(ours, theirs):
        return ""
    return f"the first step changes a parameter by {ours:.2g} and {theirs:.2g} at most"


def _why_other_gradients(one: TrainedRun, other: TrainedRun) -> str:
    ours, theirs = one.gradient_norm, other.gradient_norm
    within = format_of(one.parameters_in).norms_within
    if ours is None or theirs is None or max(ours, theirs) <= within * min(ours, theirs):
        return ""
    return f"the first step's gradients have norms of {ours:.4g} and {theirs:.4g}"


def _why_unknown(one: TrainedRun, other: TrainedRun) -> str:
    """Say why nothing that differs does not prove equal training; empty where it does."""
    if draws := one.draws or other.draws:
        return draws
    if not one.losses or not other.losses:
        return "a run kept no losses of its steps"
    if one.largest_update is None or other.largest_update is None:
        return "losses agree, as they may without any update, and no update was recorded"
    if not one.largest_update:
        return "the first step changed no parameter"
    if not one.sequences or not other.sequences:
        return "losses agree, as those of random tokens do, and a run did not record which sequences it read"
    return ""


def _losses_apart(one: TrainedRun, other: TrainedRun) -> float | None:
    """Return the largest difference of a step's losses as a share of the first run's; None where there are none."""
    return max((_apart(*pair) for pair in zip(one.losses, other.losses, strict=False)), default=None)


def _apart(loss: float, other: float) -> float:
    """Return the difference as a share of the first loss; NaN is infinitely far from any number."""
    if isnan(loss) or isnan(other):
        return 0.0 if isnan(loss) and isnan(other) else inf
    return abs(loss - other) / abs(loss) if loss else abs(other)
