"""The little statistics that a verdict needs, in so many lines that a library is not worth its import."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from statistics import NormalDist, harmonic_mean, stdev

# Student's t, two-sided 95 %, for 1 to 10 degrees of freedom; above, the first terms of its expansion around the normal are right to 0.1 %.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def t_95(freedom: int) -> float:
    """The factor of a two-sided 95 % interval for a mean with that many degrees of freedom, at least 1."""
    z = NormalDist().inv_cdf(0.975)
    return _T[freedom - 1] if freedom <= len(_T) else z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def half_width_95(values: Sequence[float]) -> float:
    """Half the 95 % confidence interval of the mean of independent values, two at least."""
    return t_95(len(values) - 1) * stdev(values) / sqrt(len(values))


def batch_rates(rates: Sequence[float], batches: int) -> list[float]:
    """Rates of consecutive, nearly equal batches of steps that do the same work; neighbours depend on each other, batches hardly do."""
    ends = [index * len(rates) // batches for index in range(batches + 1)]
    return [harmonic_mean(rates[begin:end]) for begin, end in pairwise(ends)]


def same_level(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided probability that both are drawn at one level (Mann-Whitney, normal approximation); one straggler does not decide it."""
    wins = sum((x > y) + 0.5 * (x == y) for x in a for y in b)
    expected, deviation = len(a) * len(b) / 2, sqrt(len(a) * len(b) * (len(a) + len(b) + 1) / 12)
    return 2 * (1 - NormalDist().cdf(max(abs(wins - expected) - 0.5, 0) / deviation))
