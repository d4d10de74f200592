"""Percentiles of a few or many values."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, between neighbors by linear interpolation, as NumPy's default does.

    Raises ValueError without values.
    """
    if not values:
        raise ValueError("no values have no percentile")
    ordered = sorted(values)
    place = percent / 100 * (len(ordered) - 1)
    low, high = ordered[floor(place)], ordered[ceil(place)]
    return low + (high - low) * (place - floor(place))
