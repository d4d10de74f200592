"""Loss curves: how the loss of a run fell over the tokens that it trained on; docs/numbers.md has the definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, isfinite, nan
from statistics import fmean

from llmexp.analysis.window import duration_s, slowest
from llmexp.training.repeats import RunConstants, TrainingRepeat

# The share of a run's steps, backwards from a step, over which the loss is averaged. With a smaller share the texts of
# single steps would show; a larger one would lag behind.
SMOOTHED_SHARE = 0.05
# The tolerance for reaching a loss, as a share of it. It is wider than the effect of summing in another order, so that
# a mathematically equal method reaches the loss too.
REACHED_WITHIN = 0.005


@dataclass(frozen=True)
class LossCurve:
    """A loss curve has one value a step, from step 0.

    `tokens` are those trained on when the step ended. All steps are taken to run at the speed of the measured window.
    """

    tokens: Sequence[int]
    losses: Sequence[float]
    step_time_s: float

    @cached_property
    def smoothed(self) -> list[float]:
        """The mean loss of the last 5 % of all steps (at least one), or of fewer at the start.

        All values from the first loss that is not finite are NaN.
        """
        width = ceil(SMOOTHED_SHARE * len(self.losses))
        sums = [0.0, *accumulate(self.losses)]
        means = ((sums[end] - sums[max(0, end - width)]) / min(end, width) for end in range(1, len(sums)))
        return [mean if isfinite(mean) else nan for mean in means]

    @property
    def final_loss(self) -> float:
        """The smoothed loss at the end."""
        return self.smoothed[-1]

    @property
    def seconds(self) -> list[float]:
        """The time until the end of each step, at the measured step time; start-up and the first step are left out."""
        return [step * self.step_time_s for step in range(1, len(self.losses) + 1)]

    @property
    def diverged_at(self) -> int | None:
        """The first step whose loss is not finite."""
        return next((step for step, loss in enumerate(self.losses) if not isfinite(loss)), None)

    def loss_at(self, tokens: int) -> float:
        """Return the smoothed loss of the last step that ended within this number of tokens, or NaN if none did."""
        ended = sum(1 for reached in self.tokens if reached <= tokens)
        return self.smoothed[ended - 1] if ended else nan

    def seconds_to(self, loss: float) -> float | None:
        """Return the seconds until the smoothed loss is at most 0.5 % above `loss` and stays so, or None."""
        target = loss * (1 + REACHED_WITHIN)
        # A NaN compares as not reached, and no loss reaches a target that is NaN.
        reached = [smoothed <= target for smoothed in self.smoothed]
        steps = max((step for step, good in enumerate(reached) if not good), default=-1) + 1
        return self.seconds[steps] if steps < len(reached) else None


def curve_of(repeats: Sequence[TrainingRepeat], facts: RunConstants) -> LossCurve:
    """Average over repeats, step by step, as far as all go; of a budget of tokens they have the same steps and data."""
    steps = [sorted((*repeat.warmup, *repeat.measured), key=lambda step: step[0].index) for repeat in repeats]
    steps = [repeat[: min(map(len, steps))] for repeat in steps]
    tokens = accumulate(round(facts.counted_share * sum(sample.real_tokens for sample in step)) for step in steps[0])
    losses = [fmean(sample.loss for step in same for sample in step) for same in zip(*steps, strict=True)]
    step_times_s = [duration_s(slowest(step)) for repeat in repeats for step in repeat.measured]
    return LossCurve(tuple(tokens), tuple(losses), fmean(step_times_s))


def divergence(repeats: Sequence[TrainingRepeat]) -> str:
    """Say from which step the loss was not finite; an empty string if it always was finite."""
    for number, repeat in enumerate(repeats):
        bad = [
            step[0].index
            for step in (*repeat.warmup, *repeat.measured)
            if not all(isfinite(sample.loss) for sample in step)
        ]
        if bad:
            return f"the loss diverged: no finite number at step {min(bad)} of repeat {number}"
    return ""
