"""Means with their 95 % interval, and whether a limit is broken by more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from llmexp.analysis.inference import half_width


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its confidence interval."""

    mean: float
    low: float
    high: float

    def breaks(self, limit: float) -> bool:
        """Say whether even the lower end exceeds the limit."""
        return self.low > limit

    def misses(self, floor: float) -> bool:
        """Say whether even the upper end stays below the floor."""
        return self.high < floor


def interval(values: Sequence[float]) -> Interval:
    """Return Student's interval of the mean of independent values, of which there are at least two."""
    mean, half = fmean(values), half_width(values)
    return Interval(mean, mean - half, mean + half)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Return the geometric mean of pairwise ratios; its interval is that of their logarithms.

    A cause that slows both members of a pair cancels.
    """
    logarithms = interval([math.log(over / under) for over, under in zip(numerators, denominators, strict=True)])
    return Interval(math.exp(logarithms.mean), math.exp(logarithms.low), math.exp(logarithms.high))
