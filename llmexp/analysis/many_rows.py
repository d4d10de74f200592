"""A verdict on each of many pairs of measurements, with the probability of any false difference held over all of them.

The test is Welch's t on the logarithm of the ratio. Its p-values are corrected by Holm's method (Scandinavian Journal
of Statistics 6, 1979), which bounds the probability of any false difference among all rows whatever the rows have to
do with each other; Benjamini and Hochberg's would bound the share of false ones among those found, so that one more
real difference would let one more false one through. Equivalence is shown by two one-sided tests (Schuirmann, Journal
of Pharmacokinetics and Biopharmaceutics 15, 1987). docs/results/verdicts.md has the simulated error rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan2, exp, lgamma, log, pi, sin, sqrt
from statistics import NormalDist
from typing import Literal

from llmexp.analysis.inference import INTERVALS, NORMAL_FROM, Estimate, log_ratio, repeats_for
from llmexp.record.result import Metric

# The probability that any row of equal sets is called different, and that a row at the margin is called within it.
ERROR = 0.05
MARGIN = 0.02
Answer = Literal["higher", "lower", "within", "unknown"]


@dataclass(frozen=True)
class RowsVerdict:
    """What the repeats of a pair say of b over a.

    `p` is Holm's corrected p-value of "both are equal". `repeats` is about how many of each would tell, where the
    answer is unknown; None where it is known, or where more than fifty would be needed.
    """

    answer: Answer
    estimate: Estimate | None
    p: float | None
    repeats: int | None = None


def verdicts(pairs: Sequence[tuple[Metric, Metric]], margin: float = MARGIN) -> list[RowsVerdict]:
    """Judge every pair (a, b); a pair of which one has a single repeat is unknown and counts for no correction.

    A pair is higher or lower if equality is rejected and the ratio itself is beyond the margin. It is within if both
    one-sided tests reject a ratio at or beyond the margin; these are not corrected for the number of rows.
    """
    found = [log_ratio(a, b) if min(a.n, b.n) > 1 and _spread_known(a, b) else None for a, b in pairs]
    tested = [estimate for estimate in found if estimate]
    p_values = iter(corrected(tested))
    return [
        verdict_on(estimate, next(p_values), (pair[0].n, pair[1].n), (margin, margin), len(tested))
        if estimate
        else RowsVerdict("unknown", None, None, 3)
        for pair, estimate in zip(pairs, found, strict=True)
    ]


def p_value(estimate: Estimate, truth: float = 0.0) -> float:
    """Return the two-sided p-value of the true logarithm being `truth`."""
    distance = abs(estimate.value - truth)
    if not estimate.error:
        return 0.0 if distance else 1.0
    return chance(distance / estimate.error, estimate.freedom)


def chance(factor: float, freedom: float) -> float:
    """Return the two-sided p-value of Student's t, the probability of a value beyond ± factor."""
    if freedom > NORMAL_FROM:
        return 2 * NormalDist().cdf(-abs(factor))
    # The tail is integrated from its end, because 1 minus the middle would lose small p-values. Turned by a quarter,
    # the cosine becomes a sine.
    scale = 2 * exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi)
    return min(1.0, scale * _integral_of_sine(freedom - 1, atan2(sqrt(freedom), abs(factor))))


def _integral_of_sine(power: float, end: float) -> float:
    """Integrate sin(angle) ** power from 0 to `end`, by Simpson's rule.

    With angle = end * x ** 2 the integrand is smooth enough at 0 for every power from 0 on.
    """
    step = 1 / INTERVALS
    heights: list[float] = [
        2 * end * x * sin(end * x * x) ** power for x in (index * step for index in range(INTERVALS + 1))
    ]
    return step / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1::2]) + 2 * sum(heights[2:-1:2]))


def corrected(estimates: Sequence[Estimate]) -> list[float]:
    """Return Holm's corrected p-values of "both are equal", in the same order."""
    return holm([p_value(estimate) for estimate in estimates])


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, in the same order."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def _spread_known(a: Metric, b: Metric) -> bool:
    return a.std_between_repeats is not None and b.std_between_repeats is not None


def verdict_on(
    estimate: Estimate, p: float, repeats: tuple[int, int], margins: tuple[float, float], rows: int
) -> RowsVerdict:
    """Return the verdict on one of `rows` estimates, with its corrected p-value.

    `margins` are the difference under which a ratio is within, and the one beyond which it is higher or lower.
    """
    least, most = (log(1 + margin) for margin in margins)
    distance = abs(estimate.value)
    if p < ERROR and distance > most:
        return RowsVerdict("higher" if estimate.value > 0 else "lower", estimate, p)
    # Each one-sided test at ERROR, which is half of the two-sided p-value.
    if distance <= least and max(p_value(estimate, side * least) for side in (-1, 1)) / 2 < ERROR:
        return RowsVerdict("within", estimate, p)
    if least < distance <= most:  # no number of repeats is known to take it beyond what bounds it
        return RowsVerdict("unknown", estimate, p)
    deviation = sqrt(2) * estimate.error / sqrt(sum(1 / count for count in repeats))
    half, confidence = (distance, 1 - ERROR / rows) if distance > most else (least - distance, 1 - 2 * ERROR)
    needed = repeats_for(deviation, half, confidence)
    return RowsVerdict("unknown", estimate, p, needed and max(needed, 3, *(count + 1 for count in repeats)))
