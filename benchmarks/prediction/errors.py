"""Statistics of errors, with intervals over resampled runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.figure import Figure
from benchmarks.interval import Interval

_RESAMPLED = 2000
Errors = np.ndarray[Any, np.dtype[np.float64]]


def of_errors(name: str, off: Errors, of: Callable[[Errors], np.floating], limit: float | None) -> Figure:
    """Return a statistic of errors in percent, with its interval over resampled runs."""
    draws = np.random.default_rng(0)
    values = [float(of(draws.choice(off, len(off)))) for _ in range(_RESAMPLED)]
    low, high = np.quantile(values, [0.025, 0.975])
    return Figure(name, "%", Interval(100 * float(of(off)), 100 * low, 100 * high), len(off), limit=limit)
