"""Sizes, times and rates as people read them."""

from __future__ import annotations

from llmexp.record.digits import rounded


def in_bytes(size: int) -> str:
    """Return a number of bytes in the largest binary unit that keeps it whole, such as 64 KiB."""
    power = next((power for power in (3, 2, 1) if size % 1024**power == 0 and size), 0)
    return f"{size // 1024**power:,} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def in_seconds(seconds: float) -> str:
    """Return a time in s, ms or µs with three figures."""
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= length:
            return f"{rounded(seconds / length)} {unit}"
    return f"{rounded(seconds * 1e6)} µs"


def prefix_of(largest: float) -> tuple[str, float]:
    """Return the prefix of the unit in which rates up to this one are read, with its factor."""
    return ("T", 1e12) if largest >= 1e12 else ("G", 1e9)
