"""Names as a sentence lists them."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMES = 12


def listed(names: Sequence[str]) -> str:
    """Return the names with commas, and the number of those beyond MOST_NAMES."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
