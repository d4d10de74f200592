"""A run's rate before it is measured anywhere, and how far such predictions were off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ErrorInterval:
    """The ends of a 90 % interval as shares of a predicted rate, and the number of held-out runs behind them."""

    low: float
    high: float
    runs: int


@dataclass(frozen=True)
class Prediction:
    """The predicted rate of all devices together, in the plan's unit, and where a sample's time goes."""

    rate: float
    interval: ErrorInterval
    source: str
    """What the rates of the machine go by, in a few words."""
    parts_s: Mapping[str, float]
    """The seconds of one sample by part."""

    @property
    def low(self) -> float:
        """The lower end of the 90 % interval."""
        return self.rate * self.interval.low

    @property
    def high(self) -> float:
        """The upper end of the 90 % interval."""
        return self.rate * self.interval.high

    @property
    def most(self) -> str:
        """The part that takes most of the time."""
        return max(self.parts_s, key=lambda part: self.parts_s[part])
