"""The statistics behind verdicts.

docs/numbers.md explains the rules, and `python -m benchmarks trust` simulates how often they err.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import cos, exp, hypot, lgamma, log, pi, sqrt, tan
from statistics import NormalDist, fmean, harmonic_mean, median, stdev

from llmexp.record.result import Metric

# DEPENDENCE is the correlation that is assumed between neighboring batches, because ten batches are too few to measure
# it. It is that of batches of four steps, each of which depends on the last one by 0.75. WIDENING is the factor by
# which the variance of a mean or a slope is larger in such a first-order autoregression.
DEPENDENCE = 0.35
WIDENING = (1 + DEPENDENCE) / (1 - DEPENDENCE)
# This bounds the logarithm of a ratio of which nothing is known; a float cannot hold much larger ratios.
LARGEST_LOGARITHM = 700.0
# Nobody takes more repeats.
MOST_REPEATS = 50
# With more degrees of freedom than NORMAL_FROM Student's factor equals the normal one to 0.1 %. Below it, the density
# is integrated over INTERVALS pieces.
NORMAL_FROM, INTERVALS = 2000, 400


@dataclass(frozen=True)
class Estimate:
    """An estimate, its standard error and the degrees of freedom of that error; a ratio is held as its logarithm."""

    value: float
    error: float
    freedom: float

    def half_width(self, confidence: float = 0.95) -> float:
        """Return half the width of the interval that holds the truth with this probability, by Student's t."""
        return t_factor(self.freedom, confidence) * self.error

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return both ends of the confidence interval."""
        half = self.half_width(confidence)
        return self.value - half, self.value + half

    @property
    def ratio(self) -> float:
        """The ratio of which the value is the logarithm."""
        return exp(self.value)

    def ratio_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the ratio."""
        low, high = self.interval(confidence)
        return exp(max(low, -LARGEST_LOGARITHM)), exp(min(high, LARGEST_LOGARITHM))

    def differs(self, confidence: float) -> bool:
        """Tell whether the interval lies on one side of 0, so that chance alone is ruled out."""
        return abs(self.value) > self.half_width(confidence)

    def is_within(self, share: float, confidence: float) -> bool:
        """Tell whether the interval rules out a ratio that is further from 1 than this share in either direction."""
        low, high = self.interval(confidence)
        return -log(1 + share) < low and high < log(1 + share)


@cache
def t_factor(freedom: float, confidence: float = 0.95) -> float:
    """Return Student's factor of a two-sided interval with this number of degrees of freedom, by bisection.

    SciPy is not used, because a machine that only measures need not have it. With x = sqrt(freedom) tan(angle) the
    density is a power of the angle's cosine.
    """
    if freedom > NORMAL_FROM:
        return float(NormalDist().inv_cdf((1 + confidence) / 2))
    scale = 2 * exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi)
    low, high = 0.0, pi / 2
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if scale * _integral_of_cosine(freedom - 1, middle) < confidence else (low, middle)
    return sqrt(freedom) * tan(low)


def _integral_of_cosine(power: float, end: float) -> float:
    """Integrate cos(angle) ** power from 0 to `end` by Simpson's rule."""
    step = end / INTERVALS
    heights: list[float] = [cos(index * step) ** power for index in range(INTERVALS + 1)]
    return step / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1::2]) + 2 * sum(heights[2:-1:2]))


def wilson(share: float, count: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of a share of so many independent tries."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle, scale = share + z * z / (2 * count), 1 + z * z / count
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def half_width(values: Sequence[float], confidence: float = 0.95) -> float:
    """Return half the confidence interval of the mean of independent values, at least two."""
    return half_width_of_one(len(values), confidence) * stdev(values)


def half_width_of_one(count: int, confidence: float = 0.95) -> float:
    """Return half the interval of values with a standard deviation of 1."""
    return t_factor(count - 1, confidence) / sqrt(count)


def mean_interval(metric: Metric, factor: float = 1.0) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric's mean by its repeats, times `factor`; None with one repeat.

    No quantity here is below 0, and no interval of one ends there.
    """
    if metric.std_between_repeats is None or metric.n < 2:
        return None
    half = half_width_of_one(metric.n) * metric.std_between_repeats
    return factor * max(metric.mean - half, 0.0), factor * (metric.mean + half)


def repeats_for(deviation: float, half: float, confidence: float = 0.95) -> int | None:
    """Return how many values with this deviation have an interval narrower than ± half; None above MOST_REPEATS."""
    return next(
        (count for count in range(2, MOST_REPEATS + 1) if half_width_of_one(count, confidence) * deviation < half), None
    )


def log_ratio(a: Metric, b: Metric) -> Estimate | None:
    """Estimate b over a by the spread of their repeats (first order, Welch's).

    Where one has a single repeat, it is assumed to vary as the other does. None where both have a single one, because
    one process says nothing about the next.
    """
    known = [found for one in (a, b) if (found := of_repeats(one))]
    if not known or a.mean <= 0 or b.mean <= 0:
        return None
    if len(known) == 1:
        repeats = known[0].freedom + 1
        return Estimate(
            log(b.mean / a.mean), known[0].error * sqrt(repeats) * sqrt(1 / a.n + 1 / b.n), known[0].freedom
        )
    error = hypot(*(one.error for one in known))
    freedom = error**4 / sum(one.error**4 / one.freedom for one in known) if error else a.n + b.n - 2
    return Estimate(log(b.mean / a.mean), error, freedom)


def of_repeats(metric: Metric) -> Estimate | None:
    """Estimate the logarithm of a metric's mean by the spread of its repeats; None with one repeat."""
    if metric.std_between_repeats is None or metric.n < 2 or metric.mean <= 0:
        return None
    return Estimate(log(metric.mean), metric.std_between_repeats / metric.mean / sqrt(metric.n), metric.n - 1)


def batch_rates(rates: Sequence[float], batches: int) -> list[float]:
    """Return the rates of consecutive, nearly equal batches of steps that do the same work.

    Neighboring steps depend on each other, batches hardly do.
    """
    return [harmonic_mean(batch) for batch in _batches(rates, batches)]


def batch_levels(times_s: Sequence[float], batches: int) -> list[float]:
    """Return the logarithm of the median step time in consecutive, nearly equal batches.

    The median keeps one slow step from deciding.
    """
    return [log(median(batch)) for batch in _batches(times_s, batches)]


def trend(series: Sequence[Sequence[float]], span: float) -> Estimate:
    """Estimate how much values change along `span` of a series.

    One least-squares slope fits all series, each of at least three values and around its own mean. Neighboring values
    are assumed to depend on each other.
    """
    places = [[(index + 0.5) / len(values) - 0.5 for index in range(len(values))] for values in series]
    centered = [_centered(values) for values in series]
    pairs = [pair for each, values in zip(places, centered, strict=True) for pair in zip(each, values, strict=True)]
    spread = sum(place**2 for place, _ in pairs)
    slope = sum(place * value for place, value in pairs) / spread
    freedom = len(pairs) - len(series) - 1
    scatter = sum((value - slope * place) ** 2 for place, value in pairs) / freedom
    return Estimate(slope * span, span * sqrt(WIDENING * scatter / spread), freedom)


def apart(ends: Sequence[float], series: Sequence[Sequence[float]]) -> Estimate:
    """Estimate how far `ends`, one more value for each series, lie above the mean of their series.

    The error comes from the scatter within the series, of at least three values each. Neighboring values are assumed
    to depend on each other: their mean is less certain, and they scatter less than distant values.
    """
    freedom = sum(len(values) - 1 for values in series)
    length = freedom / len(series) + 1
    scatter = (
        sum(value**2 for values in series for value in _centered(values)) / freedom * (length - 1) / (length - WIDENING)
    )
    error = sqrt(scatter * (1 + WIDENING / length) / len(series))
    return Estimate(fmean(end - fmean(values) for end, values in zip(ends, series, strict=True)), error, freedom)


def _centered(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _batches(values: Sequence[float], batches: int) -> list[Sequence[float]]:
    ends = [index * len(values) // batches for index in range(batches + 1)]
    return [values[begin:end] for begin, end in pairwise(ends)]
