"""Times as people read them."""

from __future__ import annotations

# Each unit with the one that says the rest, and how many of that make one.
_UNITS = ((86_400, "d", "h", 24), (3_600, "h", "min", 60), (60, "min", "s", 60))


def duration(seconds: float) -> str:
    """Seconds in the two largest units, as in '1.5 s', '14 s', '2 min 26 s', '13 h 36 min'."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    for unit_s, name, smaller, number in _UNITS:
        if whole >= unit_s:
            count, rest = divmod(round(whole * number / unit_s), number)
            return f"{count} {name}" + f" {rest} {smaller}" * bool(rest)
    return f"{whole} s"


def limit(key: str, seconds: float) -> str:
    """A setting in seconds as it is typed, from a minute on with the time that it is."""
    return f"{key}={seconds:g}" + f" ({duration(seconds)})" * (seconds >= 60)
