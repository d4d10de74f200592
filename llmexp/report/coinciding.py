"""Lines of a picture that lie on one another, so that it can name all of them instead of hiding some."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

# Of the picture's height: less than a line is wide.
APART = 0.004
Line = tuple[Sequence[float | str], Sequence[float | None]]


def coinciding(lines: Sequence[Line]) -> list[list[int]]:
    """Return the places of the lines in groups; all of a group coincide with its first, most groups have one line."""
    heights = [value for _, y in lines for value in y if value is not None and isfinite(value)]
    nearest = APART * (max(heights) - min(heights)) if heights else 0.0
    groups: list[list[int]] = []
    for place, line in enumerate(lines):
        found = next((group for group in groups if _coincide(lines[group[0]], line, nearest)), None)
        if found is None:
            groups.append([place])
        else:
            found.append(place)
    return groups


def _coincide(one: Line, other: Line, nearest: float) -> bool:
    if list(one[0]) != list(other[0]):
        return False
    return all(_near(a, b, nearest) for a, b in zip(one[1], other[1], strict=True))


def _near(a: float | None, b: float | None, nearest: float) -> bool:
    """Tell whether two heights differ by less than a line's width; gaps are alike."""
    gaps = [value is None or not isfinite(value) for value in (a, b)]
    return all(gaps) if any(gaps) else abs((a or 0.0) - (b or 0.0)) <= nearest
