"""How often `llmexp calibrate --show` tells a drift of predictions that is none, and how often it finds one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.figure import Figure
from benchmarks.rates import rate
from llmexp.analysis.prediction_drift import drift

# Logarithms of measured over predicted speed: of a run by its configuration, and of all runs of a session.
_OF_RUNS, _OF_SESSIONS = 0.12, 0.04
_MOST_RUNS = 6
FALSE_ALARMS, FOUND = 5.0, 80.0
Draw = Callable[[np.random.Generator, int], "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def _normal(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return rng.normal(size=count)


def _heavy(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Student's distribution with two degrees of freedom: some runs are far off."""
    return rng.standard_t(2, size=count)


def prediction_verdicts(tries: int) -> Iterator[Figure]:
    """Yield the rates of false alarms, and of drifts that are found, by the number of sessions."""
    noises: dict[str, Draw] = {"normal errors": _normal, "heavy tails": _heavy}
    for sessions in (8, 15, 40):
        for name, noise in noises.items():
            told = f"{sessions} sweeps by day, {name}"
            alarms = sum(_is_told(noise, sessions, 0.0, seed) for seed in range(tries))
            yield rate(f"drift told of equal predictions: {told}", alarms, tries, limit=FALSE_ALARMS)
            for shift in (0.1, 0.2):
                found = sum(_is_told(noise, sessions, shift, seed) for seed in range(tries))
                floor = FOUND if shift == 0.2 and sessions >= 15 and noise is _normal else None
                yield rate(f"{shift:.0%} slower than before found: {told}", found, tries, floor=floor)


def _is_told(noise: Draw, sessions: int, shift: float, seed: int) -> bool:
    """Simulate sessions of one to six runs, the newest third of which is slower, and judge them."""
    rng = np.random.default_rng(seed)
    newest = max(4, sessions // 3)
    made = []
    for place in range(sessions):
        runs = int(rng.integers(1, _MOST_RUNS + 1))
        level = _OF_SESSIONS * float(noise(rng, 1)[0]) + (np.log(1 - shift) if place >= sessions - newest else 0.0)
        made.append([float(level + _OF_RUNS * one) for one in noise(rng, runs)])
    return drift(made).is_drift
