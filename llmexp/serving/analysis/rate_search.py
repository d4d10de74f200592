"""A search for the highest rate that a server keeps up with, or at which it keeps an objective.

From the start it doubles until a rate fails, or halves until one holds; then it halves the ratio of the two rates. What
comes next follows from the answers so far alone, so that a search that was interrupted goes on from its records.
`python -m benchmarks trust` simulates how far the rate that is found lies from the server's capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from llmexp.serving.analysis.saturation_point import RateAnswer, SaturationPoint, find_saturation

# A rate with an unknown answer is tried once more, and one that contradicts another twice more.
TRIES, TRIES_OF_CONTRARY = 2, 3
# After so many rates that stayed unknown no further one is tried.
MOST_UNKNOWN = 4
DIGITS = 3


@dataclass(frozen=True)
class Found:
    """The end of a search: the interval, and why it ended."""

    saturation: SaturationPoint
    reason: str

    def __str__(self) -> str:
        """Say both."""
        return f"{self.saturation}; it ended because {self.reason}"


@dataclass(frozen=True)
class RateSearch:
    """How a search goes: from which rate, with how many probes at most, and how near to each other its ends shall be.

    The tolerance is the ratio of the interval's ends less 1, of 0.02 or more.
    """

    start_per_s: float = 1.0
    tolerance: float = 0.1
    most_probes: int = 12

    def step(self, answers: Sequence[RateAnswer]) -> float | Found:
        """Return the next rate to try, in requests a second, or the end of the search."""
        found = find_saturation(answers)
        if len(answers) >= self.most_probes:
            return Found(found, self._spent())
        if not answers:
            return self.start_per_s
        doubtful = _doubtful(answers, found)
        if doubtful:
            return doubtful
        if found.contrary_per_s:
            return Found(found, "verdicts contradict each other even after retries")
        if len(found.unknown_per_s) >= MOST_UNKNOWN:
            return Found(found, f"{MOST_UNKNOWN} rates could not be judged: more requests per point are needed")
        if found.low_per_s is None:
            return _rounded(min(rate for rate, _ in answers) / 2)
        if found.high_per_s is None:
            return _rounded(max(rate for rate, _ in answers) * 2)
        return self._between(found, [found.low_per_s, *found.unknown_per_s, found.high_per_s])

    def _spent(self) -> str:
        if self.most_probes == 1:
            return "1 probe, the only one allowed, was made"
        return f"{self.most_probes} probes, as many as are allowed, were made"

    def _between(self, found: SaturationPoint, rates: Sequence[float]) -> float | Found:
        """Return a rate between the interval's ends and what is unknown in between, where there is room."""
        for low, high in (rates[:2], rates[-2:]):
            if high > low * (1 + self.tolerance):
                return _rounded(sqrt(low * high))
        if found.unknown_per_s:
            return Found(found, "the remaining rates could not be judged: more requests per point are needed")
        return Found(found, f"its ends are within {self.tolerance:.0%} of each other")


def _doubtful(answers: Sequence[RateAnswer], found: SaturationPoint) -> float | None:
    """Return a rate that should be tried again; None where there is none."""
    tried = [rate for rate, _ in answers]
    for rate in found.unknown_per_s:
        if tried.count(rate) < TRIES:
            return rate
    contrary = found.contrary_per_s
    if contrary and found.high_per_s is not None:
        again = (rate for rate in (found.high_per_s, *contrary) if tried.count(rate) < TRIES_OF_CONTRARY)
        return next(again, None)
    return None


def _rounded(rate_per_s: float) -> float:
    return float(f"{rate_per_s:.{DIGITS}g}")
