"""Scaling efficiency: the one definition, for strong and for weak scaling."""

from __future__ import annotations


def efficiency(rate: float, ranks: int, least_rate: float, least_ranks: int) -> float:
    """A rate over what the run on the fewest ranks would give if every rank added as much as its own do; 1 where nothing is lost."""
    return rate * least_ranks / (ranks * least_rate)
