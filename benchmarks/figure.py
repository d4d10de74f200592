"""A measured figure with its limit and its verdict."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.interval import Interval


@dataclass(frozen=True)
class Figure:
    """A measured value, how often it was measured, and its limit from above or below.

    `unjudged` says why the limit does not apply to this measurement.
    """

    name: str
    unit: str
    measured: Interval
    n: int
    limit: float | None = None
    floor: float | None = None
    unjudged: str = ""

    @property
    def broken(self) -> bool:
        """Say whether the limit is broken by more than chance."""
        above = self.limit is not None and self.measured.breaks(self.limit)
        below = self.floor is not None and self.measured.misses(self.floor)
        return (above or below) and not self.unjudged

    @property
    def bounds(self) -> str:
        """The limit from above, with its sign that from below, or both."""
        if self.limit is not None and self.floor is not None:
            return f"{self.floor:g} to {self.limit:g}"
        if self.limit is not None:
            return f"{self.limit:g}"
        return "" if self.floor is None else f">= {self.floor:g}"

    @property
    def verdict(self) -> str:
        """The verdict: broken, kept, not judged with the reason, or no limit."""
        if self.unjudged:
            return f"not judged: {self.unjudged}"
        if not self.bounds:
            return "no limit"
        return "BROKEN" if self.broken else "kept"
