"""What a choice that changes the mathematics costs until the loss is that of the baseline, over seeds.

A seed decides weights and the order of the data, so the runs of one seed are a pair whose common chance cancels in
their ratio. `python -m benchmarks trust` simulates how often the verdicts err.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log
from statistics import fmean, stdev
from typing import Literal

from llmexp.analysis.blocked import RoundBlock, over_blocks
from llmexp.analysis.inference import Estimate
from llmexp.analysis.many_rows import RowsVerdict, corrected, verdict_on
from llmexp.training.convergence import LossCurve

# The share of the baseline's tokens at which it sets the loss to reach: another choice has a quarter more than it took.
SET_AT = 0.8
# Ratios that are nearer to 1 than this are called the same.
MARGIN = 0.05
CostUnit = Literal["tokens", "seconds"]


@dataclass(frozen=True)
class CostToLoss:
    """What a run took until its smoothed loss was first at or below a loss."""

    tokens: float
    seconds: float


def cost_to(curve: LossCurve, loss: float) -> CostToLoss | None:
    """Return the tokens, warm-up included, and the seconds to a loss; None where the run does not reach it.

    Within the step that reaches it the smoothed loss is taken to fall evenly.
    """
    # A NaN compares as not reached.
    step = next((step for step, smoothed in enumerate(curve.smoothed) if smoothed <= loss), None)
    if step is None:
        return None
    before, after = curve.smoothed[max(step - 1, 0)], curve.smoothed[step]
    left = (loss - after) / (before - after) if step else 0.0
    begun = curve.tokens[step - 1] if step else 0
    return CostToLoss(
        curve.tokens[step] - left * (curve.tokens[step] - begun), curve.seconds[step] - left * curve.step_time_s
    )


def default_loss(baselines: Sequence[LossCurve]) -> float | None:
    """Return a loss, rounded up to hundredths, that the baseline reaches with every seed in 80 % of its tokens.

    None where the baseline diverged with a seed.
    """
    if not baselines or any(curve.diverged_at is not None for curve in baselines):
        return None
    return ceil(100 * max(map(_least_loss, baselines))) / 100


def _least_loss(curve: LossCurve) -> float:
    """Return the least smoothed loss in that share of the tokens, of the first step at least."""
    ended = sum(1 for tokens in curve.tokens if tokens <= SET_AT * curve.tokens[-1])
    return min(curve.smoothed[: max(ended, 1)])


@dataclass(frozen=True)
class SeedsToLoss:
    """What each seed of a choice took to the loss, None where it was not reached, and the baseline's same seeds."""

    costs: Sequence[CostToLoss | None]
    baseline: Sequence[CostToLoss | None]

    @property
    def reached(self) -> int:
        """The number of seeds that reached the loss."""
        return sum(cost is not None for cost in self.costs)

    def mean(self, cost: CostUnit) -> Estimate | None:
        """Estimate the logarithm of the mean over seeds; None unless several seeds reached the loss, and all did."""
        values = [log(getattr(one, cost)) for one in self.costs if one]
        if len(values) < max(2, len(self.costs)):
            return None
        return Estimate(fmean(values), stdev(values) / len(values) ** 0.5, len(values) - 1)

    def ratio(self, cost: CostUnit) -> Estimate | None:
        """Estimate the cost over the baseline's, seed by seed; None where `mean` is."""
        return over_blocks(self.pairs(cost))

    def pairs(self, cost: CostUnit) -> list[RoundBlock]:
        """Return baseline and choice of each seed; none where a seed of either does not reach the loss.

        Those that do would be the lucky ones.
        """
        pairs = list(zip(self.baseline, self.costs, strict=True))
        if not all(base and own for base, own in pairs):
            return []
        return [(getattr(base, cost), getattr(own, cost)) for base, own in pairs]


def verdicts_on(choices: Sequence[SeedsToLoss], cost: CostUnit) -> list[RowsVerdict]:
    """Judge the cost of each choice over the baseline's by its seeds, with one error of 5 % over all choices.

    A choice is higher or lower only beyond the margin. One that does not reach the loss with every seed is unknown.
    """
    found = [choice.ratio(cost) for choice in choices]
    tested = [ratio for ratio in found if ratio]
    p_values = iter(corrected(tested))
    return [
        verdict_on(ratio, next(p_values), (choice.reached, choice.reached), (MARGIN, MARGIN), len(tested))
        if ratio
        else RowsVerdict("unknown", None, None)
        for choice, ratio in zip(choices, found, strict=True)
    ]
