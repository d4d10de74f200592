"""The axis of a chart: round numbers along it, and where a value lies on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2, log10

# The numbers beside an axis are shortened from here on: 20,000,000 is 20M.
LARGE = (("G", 1e9), ("M", 1e6))
PADDING = 0.05
# On a logarithmic axis the numbers are powers of two, 2^20 with the sign of its unit.
BINARY = ("", "Ki", "Mi", "Gi", "Ti")


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high` with a number every `step`; a logarithmic one holds the exponents of two."""

    low: float
    high: float
    step: float
    log: bool = False

    @classmethod
    def of(cls, values: Sequence[float], pieces: int, from_zero: bool, padded: bool = False) -> Axis:
        """Return an axis that holds these values in about so many pieces.

        It ends at numbers of its own, or, if it is padded, shortly behind the values.
        """
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        low = min(low, 0.0) if from_zero else low
        if low == high:  # one value stands in the middle of its axis
            low, high = (0.0, 1.0) if low == 0.0 else (low - abs(low) / 2, high + abs(high) / 2)
        span = high - low
        step = _round_step(span / pieces)
        if padded:
            return cls(low - PADDING * span, high + PADDING * span, step)
        return cls(step * floor(low / step + 1e-9), step * ceil(high / step - 1e-9), step)

    @classmethod
    def of_powers(cls, values: Sequence[float], pieces: int) -> Axis:
        """Return a logarithmic axis that holds these values, as far as they are above 0."""
        powers = [log2(value) for value in values if value > 0] or [0.0]
        low, high = min(powers), max(powers)
        margin = PADDING * (high - low or 1.0)
        return cls(low - margin, high + margin, max(1, ceil((high - low) / pieces)), log=True)

    def percent(self, value: float) -> float:
        """Return how far a value lies along the axis; on a logarithmic one nothing lies below its begin."""
        if self.log:
            value = log2(value) if value > 0 else self.low
        return 100 * (value - self.low) / (self.high - self.low)

    @property
    def numbers(self) -> list[tuple[float, str]]:
        """The numbers with their texts."""
        first, last = ceil(self.low / self.step - 1e-9), floor(self.high / self.step + 1e-9)
        found = [place * self.step for place in range(first, last + 1)]
        if self.log:
            return [(2.0**power, _power(round(power))) for power in found]
        return [(value, self._text(value)) for value in found]

    def _text(self, value: float) -> str:
        unit, size = next(
            ((unit, size) for unit, size in LARGE if max(abs(self.low), abs(self.high)) >= 10 * size), ("", 1.0)
        )
        decimals = max(0, -floor(log10(self.step / size) + 1e-9))
        return f"{value / size:,.{decimals}f}{unit if value else ''}"


def _power(power: int) -> str:
    unit = min(max(power, 0) // 10, len(BINARY) - 1)
    return f"{2.0 ** (power - 10 * unit):,g}{BINARY[unit]}"


def _round_step(least: float) -> float:
    """Return the next number of 1, 2 or 5 times a power of ten."""
    power: float = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
