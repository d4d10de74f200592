"""Which of two options is better, where what is expected of them says so in nine cases of ten."""

from __future__ import annotations

from math import log

from llmexp.advice.option import Option

# The ratio of two predicted rates, each without the runs of its method, errs by no more than this share of the width of
# their 90 % intervals, as a logarithm, for nine of ten of 2,854 pairs of the paper's runs: on A800 for 94 %, on other
# cards for 89 %. Batches of one method err as much. Pairs that it tells apart were measured in that order in 99 %:
# `python -m benchmarks predict`.
SHARE = 0.6


def told_apart(better: Option, other: Option, ratio: float) -> bool:
    """Tell whether an option is better for sure that is expected to be, by this ratio.

    The order of two measured ones is known; one of them is compared with the interval of the other's prediction.
    """
    low, high = better.rate / better.interval[0], other.interval[1] / other.rate
    if better.measured or other.measured:
        return ratio > low * high or (better.measured and other.measured)
    return log(ratio) > SHARE * (_width(better) + _width(other)) / 2


def _width(option: Option) -> float:
    """Return the width of an interval as a logarithm."""
    low, high = option.interval
    return log(high / low)
