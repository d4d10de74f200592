"""One measured figure, its limit and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.interval import Interval


@dataclass(frozen=True)
class Figure:
    """What was measured, how often, and the limit from above; `unjudged` says why a limit does not apply to this measurement."""

    name: str
    unit: str
    measured: Interval
    n: int
    limit: float | None = None
    unjudged: str = ""

    @property
    def broken(self) -> bool:
        """Whether the limit is broken by more than chance."""
        return self.limit is not None and not self.unjudged and self.measured.breaks(self.limit)

    @property
    def verdict(self) -> str:
        """One of: broken, kept, not judged with the reason, no limit."""
        if self.unjudged:
            return f"not judged: {self.unjudged}"
        if self.limit is None:
            return "no limit"
        return "BROKEN" if self.broken else "kept"
