"""Numbers as tables and sentences show them, with three significant digits; files keep all."""

from __future__ import annotations

from math import floor, isfinite, log10

GIB = 1024**3
DIGITS = 3
# Below this many places after the point a number is written with its power of ten.
MOST_DECIMALS = 6


def rounded(value: float, digits: int = DIGITS) -> str:
    """Write a number with so many significant digits, as in 15,500, 41.9, 0.0123 and 1.23e-08."""
    if value == 0 or not isfinite(value):
        return f"{value:g}"
    return _at(value, _last_place(value, digits))


def three_digits(value: float, form: str) -> str:
    """Write a number in a form such as ',.2f', with three significant digits where that would show more, or none.

    The form 'g' is three significant digits always. Whole numbers and other forms, such as a duration or %, stay as
    they are.
    """
    if form == "g":
        return rounded(value)
    text = format(value, form)
    if not form.endswith("f") or not isfinite(value):
        return text
    shown = len(text.replace(",", "").replace(".", "").lstrip("-0"))
    return rounded(value) if shown > DIGITS or (not shown and value) else text


def with_deviation(value: float, deviation: float) -> str:
    """Write a number and what stands behind its ±, both to the number's last place: 4,410 ± 970.

    A deviation that would vanish there keeps a digit of its own.
    """
    place = _last_place(value) if value and isfinite(value) else 0
    vanishes = isfinite(deviation) and deviation and not round(deviation, -place)
    behind = rounded(deviation, 1) if vanishes or not isfinite(deviation) else _at(deviation, place)
    return f"{rounded(value)} ± {behind}"


def _last_place(value: float, digits: int = DIGITS) -> int:
    """Return the power of ten of the last significant digit, once the number is rounded to it."""
    first = floor(log10(abs(value)))
    first = floor(log10(abs(round(value, digits - 1 - first))))  # 999.7 becomes 1,000
    return first - digits + 1


def _at(value: float, place: int) -> str:
    if -place > MOST_DECIMALS:
        return f"{value:.{DIGITS}g}"
    return f"{round(value, -place):,.{max(0, -place)}f}"
