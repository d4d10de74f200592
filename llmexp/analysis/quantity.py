"""A quantity of one repeat, and the metric that is computed from it over several repeats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from statistics import fmean, stdev, variance

from llmexp.record.result import Metric


@dataclass(frozen=True)
class Measurement:
    """A quantity of one repeat, with its value at each measured step where it has one."""

    value: float
    steps: tuple[float, ...] = ()

    def times(self, factor: float) -> Measurement:
        """Return the same quantity in another unit."""
        return Measurement(self.value * factor, tuple(value * factor for value in self.steps))


def over_repeats(observed: Sequence[Measurement | None]) -> Metric | None:
    """Return mean and deviations; None unless every repeat has the quantity.

    The mean is NaN where one repeat is not finite, such as a diverged loss.
    """
    known = [one for one in observed if one is not None]
    if not known or len(known) < len(observed):
        return None
    values = [one.value for one in known]
    if not all(isfinite(value) for value in values):
        return Metric(mean=nan, n=len(values))
    return Metric(
        mean=fmean(values),
        std_between_repeats=stdev(values) if len(values) > 1 else None,
        std_within_run=_pooled_std([one.steps for one in known]),
        n=len(values),
    )


def _pooled_std(repeats: Iterable[Sequence[float]]) -> float | None:
    """Return the deviation of steps around the mean of their own repeat, without differences between repeats."""
    varied = [(len(steps) - 1, variance(steps)) for steps in repeats if len(steps) > 1]
    freedom = sum(n for n, _ in varied)
    return sqrt(sum(n * v for n, v in varied) / freedom) if freedom else None
