"""Durations in text that people read easily."""

from __future__ import annotations

# Each unit in seconds, its name, the smaller unit for the rest, and how many of those make one.
_UNITS = ((86_400, "d", "h", 24), (3_600, "h", "min", 60), (60, "min", "s", 60))


def duration(seconds: float) -> str:
    """Write seconds in the two largest units, as in '1.5 s', '14 s', '2 min 26 s', '13 h 36 min'."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    for unit_s, name, smaller, number in _UNITS:
        if whole >= unit_s:
            count, rest = divmod(round(whole * number / unit_s), number)
            return f"{count} {name}" + f" {rest} {smaller}" * bool(rest)
    return f"{whole} s"


def limit(key: str, seconds: float) -> str:
    """Write a setting in seconds as it is typed, and from one minute on add the duration."""
    return f"{key}={seconds:g}" + f" ({duration(seconds)})" * (seconds >= 60)
