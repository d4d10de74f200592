"""What a larger batch would still bring, by the speeds of the batches that a search has tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log, log2, sqrt
from statistics import fmean, variance
from typing import Literal

from llmexp.analysis.inference import Estimate
from llmexp.record.result import Metric

# A doubling of the batch that brings less is not worth its memory.
WORTH = 0.05
Answer = Literal["pays", "saturated", "unknown"]


@dataclass(frozen=True)
class BatchGain:
    """The speed that the last doubling of the batch brought, and whether a further one would pay.

    `smaller` and `largest` are samples a rank; `doubling` is the logarithm of the ratio of tokens/s at
    twice the batch.
    """

    smaller: int
    largest: int
    doubling: Estimate

    @property
    def answer(self) -> Answer:
        """pays or saturated where the 95 % interval lies above or below WORTH, else unknown."""
        low, high = self.doubling.interval()
        if low > log(1 + WORTH):
            return "pays"
        return "saturated" if high < log(1 + WORTH) else "unknown"


def batch_gain(trials: Mapping[int, Sequence[float]], repeats: Metric | None = None) -> BatchGain | None:
    """Compare the speeds of the trials of the largest batch with those of the largest at half of it or below.

    `trials` are tokens/s by samples a rank, all positive; `repeats` is the speed of the run itself at the largest. Its
    windows are longer, so it tells the deviation between processes alone, which is taken for the same share at every
    batch. None where no batch was small enough, or nothing was measured twice.
    """
    largest = max(trials, default=0)
    smaller = max((micro for micro in trials if 2 * micro <= largest), default=None)
    variances = [*_variances(trials.values()), *_of_repeats(repeats)]
    freedom = sum(count for count, _ in variances)
    if smaller is None or not freedom:
        return None
    deviation = sqrt(sum(count * value for count, value in variances) / freedom)
    octaves, ends = log2(largest / smaller), (trials[largest], trials[smaller])
    gained = fmean(map(log, ends[0])) - fmean(map(log, ends[1]))
    error = deviation * sqrt(sum(1 / len(end) for end in ends))
    return BatchGain(smaller, largest, Estimate(gained / octaves, error / octaves, freedom))


def _variances(speeds: Iterable[Sequence[float]]) -> list[tuple[int, float]]:
    return [(len(some) - 1, variance(map(log, some))) for some in speeds if len(some) > 1]


def _of_repeats(repeats: Metric | None) -> list[tuple[int, float]]:
    if repeats is None or repeats.std_between_repeats is None:
        return []
    return [(repeats.n - 1, (repeats.std_between_repeats / repeats.mean) ** 2)]
