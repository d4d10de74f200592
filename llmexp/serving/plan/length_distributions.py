"""Distributions of lengths in tokens, of which none has a length without end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, log, log1p, sqrt
from statistics import NormalDist, fmean
from typing import Protocol

NORMAL = NormalDist()
BELOW_ONE = 1 - 2**-53


class Distribution(Protocol):
    """Lengths in tokens, by numbers that are equally likely between 0 and 1."""

    @property
    def longest(self) -> int:
        """The most tokens there can be."""

    @property
    def mean(self) -> float:
        """The tokens there are on average."""

    def at(self, share: float) -> int:
        """Return the length below which this share of all lengths lies."""


@dataclass(frozen=True)
class Between:
    """Lengths that are equally likely; one alone where the bounds are the same."""

    least: int
    longest: int

    @property
    def mean(self) -> float:
        """Return the tokens half-way between the bounds."""
        return (self.least + self.longest) / 2

    def at(self, share: float) -> int:
        """Return the length below which this share of all lengths lies."""
        return self.least + int(share * (self.longest - self.least + 1))


@dataclass(frozen=True)
class CutLognormal:
    """Lengths whose logarithms are normal, without those that lie outside of the limits.

    What is outside is not put onto the limits, where it would make a heap: the distribution is that of lengths drawn
    again until one is inside.
    """

    uncut_mean: int
    variation: float
    least: int
    longest: int

    def at(self, share: float) -> int:
        """Return the length below which this share of the lengths inside lies."""
        low, high = self._probabilities
        drawn = NORMAL.inv_cdf(min(low + share * (high - low), BELOW_ONE))
        return min(max(round(exp(self._log_mean + self._log_deviation * drawn)), self.least), self.longest)

    @cached_property
    def mean(self) -> float:
        """The mean between the limits, before lengths are rounded."""
        low, high = self._probabilities
        inside = [NORMAL.cdf(limit - self._log_deviation) for limit in self._limits]
        return self.uncut_mean * (inside[1] - inside[0]) / (high - low)

    @property
    def _log_deviation(self) -> float:
        return sqrt(log1p(self.variation**2))

    @property
    def _log_mean(self) -> float:
        return log(self.uncut_mean) - self._log_deviation**2 / 2

    @cached_property
    def _limits(self) -> tuple[float, float]:
        """The limits as deviations of the logarithm; half a token further out, because lengths are rounded."""
        low, high = (log(limit) - self._log_mean for limit in (self.least - 0.5, self.longest + 0.5))
        return low / self._log_deviation, high / self._log_deviation

    @cached_property
    def _probabilities(self) -> tuple[float, float]:
        return NORMAL.cdf(self._limits[0]), NORMAL.cdf(self._limits[1])


@dataclass(frozen=True)
class Listed:
    """Lengths of a file, each row as likely as the others."""

    rows: tuple[int, ...]

    @cached_property
    def longest(self) -> int:
        """Return the longest of the rows."""
        return max(self.rows)

    @cached_property
    def mean(self) -> float:
        """Return the mean of the rows."""
        return fmean(self.rows)

    def at(self, share: float) -> int:
        """Return the row at this share of them, in the file's order."""
        return self.rows[int(share * len(self.rows))]
