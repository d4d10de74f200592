"""Scaling efficiency, defined once for strong and for weak scaling."""

from __future__ import annotations


def efficiency(rate: float, ranks: int, least_rate: float, least_ranks: int) -> float:
    """Return a rate over the rate of the run on the fewest ranks, scaled up to this number; 1 where nothing is lost."""
    return rate * least_ranks / (ranks * least_rate)
