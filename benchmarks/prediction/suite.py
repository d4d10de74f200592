"""The errors of predictions as figures with limits, and the intervals that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.figure import Figure
from benchmarks.interval import Interval
from benchmarks.prediction.fit import Vector
from benchmarks.prediction.judge import Judge, Judged
from benchmarks.rates import rate
from llmexp.training.predict.interval import group_of
from llmexp.training.predict.rates import DATA_SHEET, FITTED

# Medians and 95th percentiles of the errors, in percent.
_LIMITS = {"one method left out": (10.0, 40.0), "table IV": (7.5, None), "a platform left out, three": (14.0, None)}
_RESAMPLED = 2000
# A 90 % interval may hold fewer than this only by chance.
_HOLDS = 85.0


def predict(folder: Path) -> Iterator[Figure]:
    """Yield the errors of step times by what was left out of the fit, and how often the intervals hold."""
    judge = Judge()
    judged = list(judge.all_runs())
    for one in judged:
        limits = next((limits for name, limits in _LIMITS.items() if one.name.startswith(name)), (None, None))
        yield _of_errors(f"median error, {one.name}", one.off, np.median, limits[0])
        yield _of_errors(f"95th percentile, {one.name}", one.off, lambda off: np.quantile(off, 0.95), limits[1])
    yield from _holding(judged[0])


def intervals(judge: Judge) -> dict[str, list[float]]:
    """Return the ends of 90 % intervals of tokens/s as shares of the prediction, and the runs behind, by group."""
    by_method, unseen = judge.method_left_out(), judge.platform_left_out(kept=False)
    groups = {
        group_of(task, FITTED, offloads=False): by_method.part(task, [c.task == task for c in by_method.cells])
        for task in ("pretrain", "finetune")
    } | {
        group_of("", DATA_SHEET, offloads=offloads): unseen.part("", [c.offloads == offloads for c in unseen.cells])
        for offloads in (True, False)
    }
    return {name: [*_ends(group.errors), len(group.cells)] for name, group in groups.items()}


def _ends(errors: Vector) -> list[float]:
    """Return the conformal ends: the quantiles of n + 1 runs, of which the next one is the last."""
    n = len(errors)
    low, high = (min(1.0, max(0.0, share)) for share in (0.95 * (n + 1) / n, 0.05 - 0.95 / n))
    return [round(float(np.exp(-np.quantile(errors, share))), 3) for share in (low, high)]


def _holding(judged: Judged) -> Iterator[Figure]:
    """Yield how often the interval held the speed, each method judged by the errors of the others."""
    for task in ("pretrain", "finetune"):
        part = judged.part(task, [cell.task == task for cell in judged.cells])
        held = 0
        for method in {cell.method for cell in part.cells}:
            out = np.array([cell.method == method for cell in part.cells])
            low, high = _ends(part.errors[~out])
            speeds = np.exp(-part.errors[out])
            held += int(((speeds >= low) & (speeds <= high)).sum())
        yield rate(f"{task}: 90 % intervals that hold", held, len(part.cells), floor=_HOLDS)


def _of_errors(name: str, off: Vector, of: Callable[[Vector], np.floating], limit: float | None) -> Figure:
    """Return a statistic of errors in percent, with its interval over resampled runs."""
    draws = np.random.default_rng(0)
    values = [float(of(draws.choice(off, len(off)))) for _ in range(_RESAMPLED)]
    low, high = np.quantile(values, [0.025, 0.975])
    return Figure(name, "%", Interval(100 * float(of(off)), 100 * low, 100 * high), len(off), limit=limit)
