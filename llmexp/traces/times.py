"""Times of events as the file has them, decimal numbers of microseconds, as whole nanoseconds.

Profilers write the microseconds of the epoch with three decimals, more digits than a floating-point number has. So the
digits themselves are read, those of many events at once. Durations are short enough for floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.integer[Any]]
DECIMALS = 3
# Larger times and durations, of a hundred years, come from no profiler, and their nanoseconds do not fit 64 bits.
LARGEST_US = 2**52
# Below fifty days a product with 1000 is rounded by less than a quarter of a nanosecond.
EXACT_BELOW_US = 2**42
# Numbers below this fit 64 bits with what rounding adds; those that do not are read as the largest that fit.
_LARGEST = 9 * 10**18
# All characters of numbers without an exponent lie between these two, and no others that JSON has outside of texts.
_FIRST, _LAST = b",9"
_COMMA, _POINT = b",."


def nanoseconds(times: Sequence[msgspec.Raw]) -> Numbers:
    """Return times in microseconds as nanoseconds, rounded to the nearest.

    Raises ValueError where one is no number in JSON, or one of LARGEST_US or more.
    """
    text = b",".join(times)
    codes = np.frombuffer(text, np.uint8)
    if len(codes) and codes.min() >= _FIRST and codes.max() <= _LAST:
        digits: Numbers = np.fromstring(text.replace(b".", b""), np.int64, sep=",")
        if digits.min() > -_LARGEST and digits.max() < _LARGEST:
            return _rounded(digits, _decimals(codes, len(times)))
    return np.array([_exactly(time) for time in times], np.int64)


def durations_ns(durations: Sequence[Any]) -> Numbers:
    """Return durations in microseconds as nanoseconds, rounded to the nearest; None is 0.

    Raises TypeError or ValueError where one is no number, and ValueError where one is LARGEST_US or more.
    """
    values = np.array(durations)
    if values.dtype.kind == "O":  # some are None
        values = np.array([each or 0 for each in durations])
    if values.dtype.kind not in "iuf":
        raise TypeError
    if len(values) and not np.abs(values).max() < EXACT_BELOW_US:
        return np.array([_thousandths(Decimal(each or 0)) for each in durations], np.int64)
    thousandths: Numbers = np.rint(values * 1000).astype(np.int64)
    return thousandths


def is_time(time: msgspec.Raw) -> bool:
    """Tell whether `nanoseconds` takes a time."""
    with suppress(ValueError):
        return _exactly(time) is not None
    return False


def is_duration(duration: Any) -> bool:
    """Tell whether `durations_ns` takes a duration, and it is not negative."""
    return duration is None or (isinstance(duration, int | float) and 0 <= duration < LARGEST_US)


def _decimals(codes: Numbers, count: int) -> Numbers:
    """Return the number of decimals of each number, or one for all where they have as many and are as long."""
    length = (len(codes) + 1) // count
    if length * count == len(codes) + 1 and length > DECIMALS + 1:
        points, commas = codes[length - DECIMALS - 2 :: length], codes[length - 1 :: length]
        if (points == _POINT).all() and (commas == _COMMA).all():
            return np.array([DECIMALS])
    ends, points = np.append(np.flatnonzero(codes == _COMMA), len(codes)), np.flatnonzero(codes == _POINT)
    decimals, which = np.zeros(count, np.int64), np.searchsorted(ends, points)
    decimals[which] = ends[which] - points - 1
    return decimals


def _rounded(digits: Numbers, decimals: Numbers) -> Numbers:
    """Return numbers of so many decimals as thousandths; raises ValueError where one is LARGEST_US or more."""
    # Those of more decimals are below that, for they fit 64 bits.
    largest = np.where(decimals > DECIMALS, _LARGEST, LARGEST_US * 10 ** np.minimum(decimals, DECIMALS))
    if (np.abs(digits) >= largest).any():
        raise ValueError(f"{LARGEST_US} us are too many")
    if (decimals == DECIMALS).all():
        return digits
    divisor = 10 ** np.maximum(decimals - DECIMALS, 0)
    rounded: Numbers = (digits * 10 ** np.maximum(DECIMALS - decimals, 0) + divisor // 2) // divisor
    return rounded


def _exactly(time: msgspec.Raw) -> int:
    try:
        return _thousandths(Decimal(bytes(time).decode("ascii")))
    except (InvalidOperation, UnicodeDecodeError):
        raise ValueError(f"{bytes(time)!r} is no number") from None


def _thousandths(number: Decimal) -> int:
    if not -LARGEST_US < number < LARGEST_US:
        raise ValueError(f"{LARGEST_US} us are too many")
    return round(number * 1000)
