"""Shares of simulated runs, with their intervals."""

from __future__ import annotations

from benchmarks.figure import Figure
from benchmarks.interval import Interval
from llmexp.analysis.inference import wilson

# A 90 % interval may hold a share of runs that lies beyond these only by chance, in percent.
HOLDS, HOLDS_AT_MOST = 85.0, 95.0


def rate(name: str, events: int, tries: int, *, limit: float | None = None, floor: float | None = None) -> Figure:
    """Return a share in percent with Wilson's 95 % interval; it is broken only if that lies beyond the limit."""
    share = events / tries
    low, high = wilson(share, tries)
    return Figure(name, "%", Interval(100 * share, 100 * low, 100 * high), tries, limit=limit, floor=floor)


def held_rate(name: str, held: int, tries: int) -> Figure:
    """Return how often 90 % intervals held, with both limits."""
    return rate(name, held, tries, floor=HOLDS, limit=HOLDS_AT_MOST)
