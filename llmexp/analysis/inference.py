"""The statistics that verdicts need. docs/numbers.md has the rules in words; `python -m benchmarks trust` simulates how often they err."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import cos, exp, hypot, lgamma, log, pi, sqrt, tan
from statistics import NormalDist, fmean, harmonic_mean, median, stdev

from llmexp.record.result import Metric

# The correlation of neighbouring batches that is taken, that of batches of four steps each of which depends on the last by 0.75; ten batches are too
# few to measure it. WIDENING is what the variance of a mean or a slope of a first-order autoregression is larger by.
DEPENDENCE = 0.35
WIDENING = (1 + DEPENDENCE) / (1 - DEPENDENCE)
# Of a ratio that nothing is known of; a float holds no larger one.
LARGEST_LOGARITHM = 700.0
# More nobody takes.
MOST_REPEATS = 50
# Degrees of freedom from which on Student's factor is the normal one to 0.1 %, and the pieces that its density is summed up in below.
NORMAL_FROM, INTERVALS = 2000, 400


@dataclass(frozen=True)
class Estimate:
    """A figure with its standard error, and the degrees of freedom which that was drawn from; of ratios their logarithm."""

    value: float
    error: float
    freedom: float

    def half_width(self, confidence: float = 0.95) -> float:
        """Half the interval that holds the truth with this probability, by Student's t."""
        return t_factor(self.freedom, confidence) * self.error

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Both ends of it."""
        half = self.half_width(confidence)
        return self.value - half, self.value + half

    @property
    def ratio(self) -> float:
        """What the value is the logarithm of."""
        return exp(self.value)

    def ratio_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The interval of the ratio."""
        low, high = self.interval(confidence)
        return exp(max(low, -LARGEST_LOGARITHM)), exp(min(high, LARGEST_LOGARITHM))

    def differs(self, confidence: float) -> bool:
        """Whether chance alone is ruled out: the interval lies on one side of 0."""
        return abs(self.value) > self.half_width(confidence)

    def is_within(self, share: float, confidence: float) -> bool:
        """Whether a ratio further from 1 than this share is ruled out, either way."""
        low, high = self.interval(confidence)
        return -log(1 + share) < low and high < log(1 + share)


@cache
def t_factor(freedom: float, confidence: float = 0.95) -> float:
    """Student's factor of a two-sided interval with that many degrees of freedom, by bisection; a machine that only measures need not have SciPy.

    With x = sqrt(freedom) tan(angle) the density is a power of the angle's cosine.
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
    """Of cos(angle) ** power from 0 to `end`, by Simpson's rule."""
    step = end / INTERVALS
    heights: list[float] = [cos(index * step) ** power for index in range(INTERVALS + 1)]
    return step / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1::2]) + 2 * sum(heights[2:-1:2]))


def half_width(values: Sequence[float], confidence: float = 0.95) -> float:
    """Half the confidence interval of the mean of independent values, two at least."""
    return half_width_of_one(len(values), confidence) * stdev(values)


def half_width_of_one(count: int, confidence: float = 0.95) -> float:
    """The same where values have a standard deviation of 1."""
    return t_factor(count - 1, confidence) / sqrt(count)


def repeats_for(deviation: float, half: float, confidence: float = 0.95) -> int | None:
    """How many values of such a deviation have an interval narrower than ± half; None where MOST_REPEATS have not."""
    return next(
        (count for count in range(2, MOST_REPEATS + 1) if half_width_of_one(count, confidence) * deviation < half), None
    )


def log_ratio(a: Metric, b: Metric) -> Estimate | None:
    """b over a, by how far their repeats differ (first order, Welch's); where one has a single repeat it is taken to vary as the other does.

    None where both have, for one process says nothing of the next.
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
    """The logarithm of a metric's mean, by how far its repeats differ; None with one."""
    if metric.std_between_repeats is None or metric.n < 2 or metric.mean <= 0:
        return None
    return Estimate(log(metric.mean), metric.std_between_repeats / metric.mean / sqrt(metric.n), metric.n - 1)


def batch_rates(rates: Sequence[float], batches: int) -> list[float]:
    """Rates of consecutive, nearly equal batches of steps that do the same work; neighbours depend on each other, batches hardly do."""
    return [harmonic_mean(batch) for batch in _batches(rates, batches)]


def batch_levels(times_s: Sequence[float], batches: int) -> list[float]:
    """Logarithms of the median time of each of consecutive, nearly equal batches of steps: one straggler does not decide it."""
    return [log(median(batch)) for batch in _batches(times_s, batches)]


def trend(series: Sequence[Sequence[float]], span: float) -> Estimate:
    """By how much values change along `span` of a series: one least-squares slope for all series, each around its own mean, three values at least.

    Neighbours are taken to depend on each other.
    """
    places = [[(index + 0.5) / len(values) - 0.5 for index in range(len(values))] for values in series]
    centred = [_centred(values) for values in series]
    pairs = [pair for each, values in zip(places, centred, strict=True) for pair in zip(each, values, strict=True)]
    spread = sum(place**2 for place, _ in pairs)
    slope = sum(place * value for place, value in pairs) / spread
    freedom = len(pairs) - len(series) - 1
    scatter = sum((value - slope * place) ** 2 for place, value in pairs) / freedom
    return Estimate(slope * span, span * sqrt(WIDENING * scatter / spread), freedom)


def apart(ends: Sequence[float], series: Sequence[Sequence[float]]) -> Estimate:
    """How far one more value of each series, its end, lies above the mean of the series, by the scatter within them; three values of each at least.

    Neighbours are taken to depend on each other: their mean is known less well, and they scatter less than values that lie far apart.
    """
    freedom = sum(len(values) - 1 for values in series)
    length = freedom / len(series) + 1
    scatter = (
        sum(value**2 for values in series for value in _centred(values)) / freedom * (length - 1) / (length - WIDENING)
    )
    error = sqrt(scatter * (1 + WIDENING / length) / len(series))
    return Estimate(fmean(end - fmean(values) for end, values in zip(ends, series, strict=True)), error, freedom)


def _centred(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _batches(values: Sequence[float], batches: int) -> list[Sequence[float]]:
    ends = [index * len(values) // batches for index in range(batches + 1)]
    return [values[begin:end] for begin, end in pairwise(ends)]
