"""What a run did as a training: the evidence by which two runs are found to have learned the same, or not.

docs/numbers.md has the limits, which are what layouts and library versions were seen to differ by, and
`python -m benchmarks trust` says how often they err.
"""

from __future__ import annotations

from math import inf, isnan

from pydantic import Field

from llmexp.analysis.sameness import DIFFERENT, SAME, UNKNOWN, DoneTraining, Sameness
from llmexp.dtypes import format_of
from llmexp.record.samples import Number

# The tolerated factor between the first step's largest updates, of which ranks sample different elements.
UPDATES_WITHIN = 4.0


class TrainedRun(DoneTraining):
    """The first steps of a run's first repeat, warm-up included, and what it was asked to learn by."""

    parameters_in: str = Field(description="the parameters' dtype")
    losses: list[Number] = Field(description="of each step, the mean over ranks and passes")
    sequences: list[str] = Field(
        default_factory=list, description="a digest of those that each step read; none where the ranks did not say"
    )
    products_in: str | None = Field(None, description="the dtypes of the matrix products that ran; None where unseen")
    gradient_norm: float | None = Field(None, description="of the first step, over the whole model")
    largest_update: float | None = Field(None, description="of a parameter by the first step, of a sample")
    draws: str = Field("", description="what makes equal trainings differ by chance, such as dropout; empty if nothing")

    @property
    def has_losses(self) -> bool:
        """Tell whether the losses of its steps are known."""
        return bool(self.losses)

    @property
    def has_data(self) -> bool:
        """Tell whether each step's sequences are known."""
        return bool(self.sequences)

    def against(self, other: TrainedRun) -> Sameness:
        """Judge another run that was asked for the same training."""
        apart = _losses_apart(self, other)
        if reason := _why_different(self, other, apart):
            return Sameness(DIFFERENT, reason, apart)
        return Sameness(UNKNOWN if (doubt := _why_unknown(self, other)) else SAME, doubt, apart)


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
        return "losses agree, as they would without any update, and no update was recorded"
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
