"""Means with their 95 % interval, and whether a limit is broken by more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its confidence interval; the ends are the mean itself where there is one value."""

    mean: float
    low: float
    high: float

    def breaks(self, limit: float) -> bool:
        """Whether even the lower end exceeds the limit."""
        return self.low > limit


def interval(values: Sequence[float]) -> Interval:
    """Student's interval of the mean of independent values."""
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, mean, mean)
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """The geometric mean of pairwise ratios, so that what slowed both members of a pair cancels; its interval is that of their logarithms."""
    logarithms = interval([math.log(over / under) for over, under in zip(numerators, denominators, strict=True)])
    return Interval(math.exp(logarithms.mean), math.exp(logarithms.low), math.exp(logarithms.high))


def t_quantile(freedom: int) -> float:
    """How many standard errors the interval reaches to either side, by Student's t."""
    low, high = 0.0, 1e3
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _t_mass(middle, freedom) < CONFIDENCE else (low, middle)
    return high


def _t_mass(reach: float, freedom: int, slices: int = 400) -> float:
    """Probability of |t| < reach: with t = sqrt(n) tan(x) the density becomes cos(x)^(n-1), which Simpson's rule integrates."""
    end = math.atan(reach / math.sqrt(freedom))
    scale = 2 * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    weights = [1, *([4, 2] * (slices // 2))[:-1], 1]
    heights = (math.cos(end * index / slices) ** (freedom - 1) for index in range(slices + 1))
    return scale * end / slices / 3 * sum(weight * height for weight, height in zip(weights, heights, strict=True))
