"""How the loss of a run fell over the tokens that it trained on: docs/numbers.md has the definitions in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, isfinite, nan
from statistics import fmean

from llmexp.analysis.window import duration_s, slowest
from llmexp.tasks.training.repeats import RunConstants, TrainingRepeat

# Of a run's steps: what the loss is averaged over, backwards from a step. Less would show the text of single steps, more would lag behind.
SMOOTHED_SHARE = 0.05
# Of the loss to be reached: more than other orders of the same sums make, so that a method that is the same mathematics reaches it too.
REACHED_WITHIN = 0.005


@dataclass(frozen=True)
class LossCurve:
    """A value a step from step 0: tokens trained on when the step ended, and its loss; steps at the speed of the measured window."""

    tokens: Sequence[int]
    losses: Sequence[float]
    step_time_s: float

    @cached_property
    def smoothed(self) -> list[float]:
        """Mean loss of the last 5 % of all steps (at least one), as far as there are so many; NaN from the first loss on that is no finite number."""
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
        """Time of all steps up to each, at the measured step time: start-up and the first step are left out."""
        return [step * self.step_time_s for step in range(1, len(self.losses) + 1)]

    @property
    def diverged_at(self) -> int | None:
        """The first step whose loss is no finite number."""
        return next((step for step, loss in enumerate(self.losses) if not isfinite(loss)), None)

    def loss_at(self, tokens: int) -> float:
        """The smoothed loss of the last step that ended within so many tokens; NaN where none did."""
        ended = sum(1 for reached in self.tokens if reached <= tokens)
        return self.smoothed[ended - 1] if ended else nan

    def seconds_to(self, loss: float) -> float | None:
        """Seconds until the smoothed loss is within 0.5 % above `loss`, or lower, and stays so to the end; None where it never is."""
        target = loss * (1 + REACHED_WITHIN)
        # NaN is not reached, and reaches nothing.
        reached = [smoothed <= target for smoothed in self.smoothed]
        steps = max((step for step, good in enumerate(reached) if not good), default=-1) + 1
        return self.seconds[steps] if steps < len(reached) else None


def curve_of(repeats: Sequence[TrainingRepeat], facts: RunConstants) -> LossCurve:
    """The mean over repeats, step by step; repeats of a token budget have the same steps, and the same data."""
    steps = [sorted((*repeat.warmup, *repeat.measured), key=lambda step: step[0].index) for repeat in repeats]
    tokens = accumulate(round(facts.counted_share * sum(sample.real_tokens for sample in step)) for step in steps[0])
    losses = [fmean(sample.loss for step in same for sample in step) for same in zip(*steps, strict=True)]
    step_times_s = [duration_s(slowest(step)) for repeat in repeats for step in repeat.measured]
    return LossCurve(tuple(tokens), tuple(losses), fmean(step_times_s))


def divergence(repeats: Sequence[TrainingRepeat]) -> str:
    """Say from which step on losses were no finite numbers; empty where all were."""
    for number, repeat in enumerate(repeats):
        bad = [
            step[0].index
            for step in (*repeat.warmup, *repeat.measured)
            if not all(isfinite(sample.loss) for sample in step)
        ]
        if bad:
            return f"the loss diverged: no finite number at step {min(bad)} of repeat {number}"
    return ""
