"""The errors of predictions as figures with limits, and the intervals that follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.figure import Figure
from benchmarks.interval import Interval
from benchmarks.prediction.contradictions import contradicting, least_quantile
from benchmarks.prediction.errors import of_errors
from benchmarks.prediction.fit import Vector
from benchmarks.prediction.here import here_figures
from benchmarks.prediction.judge import PUBLISHED, Judge, Judged
from benchmarks.prediction.memory import memory_figures
from benchmarks.prediction.pairs import pair_figures
from benchmarks.prediction.published import published_figures
from benchmarks.prediction.serving import predict_serving
from benchmarks.prediction.traced import traced_figures
from benchmarks.rates import HOLDS, held_rate
from benchmarks.trust_memory import even_verdicts
from llmexp.record.predicted import ENOUGH_HELD_OUT
from llmexp.training.predict.interval import PUBLISHED as KINDS
from llmexp.training.predict.interval import fitted_group, kind_of, other_group

# Medians and 95th percentiles of the errors, in percent: of step times, and of tokens/s.
_LIMITS = {
    "one method left out": (10.0, 40.0),
    "table IV": (7.5, None),
    "a platform left out, three": (14.0, None),
    PUBLISHED: (15.0, None),
}
_OF_SPEED = (10.0, 32.0)
_TAIL = 0.95
# A kind of published runs has an interval of its own from so many runs and sources on.
_LEAST_RUNS, _LEAST_SOURCES = 5, 2


def predict(folder: Path) -> Iterator[Figure]:
    """Yield the errors of step times, of memory and of servers by what was left out, and how often intervals hold."""
    judge = Judge()
    judged = list(judge.all_runs())
    for one in judged:
        limits = next((limits for name, limits in _LIMITS.items() if one.name.startswith(name)), (None, None))
        yield from _median_and_tail(one, one.name, limits)
    yield from _median_and_tail(judged[0].of_speed, f"{judged[0].name}, as a share of tokens/s", _OF_SPEED)
    yield from tail(judge.fitted_to_all(), judged[0])
    yield from _holding(judged[0])
    yield from pair_figures(judged[0])
    for kind, part in kinds(judge).items():
        yield held_rate(
            f"{kind}: 90 % intervals by other sources that hold", held_by_other_sources(part), len(part.cells)
        )
    yield from published_figures()
    yield from memory_figures()
    yield from even_verdicts()
    yield from traced_figures()
    yield from predict_serving(folder)
    yield from here_figures(folder)


def _median_and_tail(part: Judged, name: str, limits: tuple[float | None, float | None]) -> Iterator[Figure]:
    yield of_errors(f"median error, {name}", part.off, np.median, limits[0])
    yield _tail_of(part, name, limits[1])


def _tail_of(part: Judged, name: str, limit: float | None) -> Figure:
    return of_errors(f"95th percentile, {name}", part.off, lambda off: np.quantile(off, _TAIL), limit)


def without_contradictions(judged: Judged) -> Judged:
    """Return the judged runs but for those that contradict each other."""
    wrong = contradicting(judged.cells)
    return judged.part(judged.name, [place not in wrong for place in range(len(judged.cells))])


def tail(fitted: Judged, judged: Judged) -> Iterator[Figure]:
    """Yield the 95th percentile fitted to all, without cells that contradict each other, and by these alone."""
    parts = {fitted.name: fitted, "without contradictions": without_contradictions(judged)}
    for words, part in parts.items():
        yield _tail_of(part, words, None)
    least = 100 * least_quantile(judged.cells, _TAIL)
    yield Figure("95th percentile by contradictions alone", "%", Interval(least, least, least), len(judged.cells))


def intervals(judge: Judge) -> dict[str, list[float]]:
    """Return the ends of 90 % intervals of tokens/s as shares of the prediction, and the runs or sources behind."""
    by_method, unseen = judge.method_left_out(), judge.platform_left_out(kept=False)
    groups = {
        fitted_group(task): by_method.part(task, [c.task == task for c in by_method.cells])
        for task in ("pretrain", "finetune")
    } | {
        other_group(offloads=offloads): unseen.part("", [c.offloads == offloads for c in unseen.cells])
        for offloads in (True, False)
    }
    published = {kind: [*_ends_of_sources(part), _held_out(part)] for kind, part in kinds(judge).items()}
    return {name: [*_ends(group.errors), len(group.cells)] for name, group in groups.items()} | published


def kinds(judge: Judge) -> dict[str, Judged]:
    """Return what others published by kind, where there are enough runs of several sources."""
    all_of_them = judge.published()
    kept = [not cell.offloads for cell in all_of_them.cells]
    parts = {
        kind: all_of_them.part(
            kind, [keep and kind_of(cell.plan) == kind for keep, cell in zip(kept, all_of_them.cells, strict=True)]
        )
        for kind in KINDS
    }
    return {
        kind: part
        for kind, part in parts.items()
        if len(part.cells) >= _LEAST_RUNS and len(part.by_source) >= _LEAST_SOURCES
    }


def _held_out(part: Judged) -> int:
    """Return the runs; or the sources, where the intervals of others hold too few: runs of one source err alike."""
    holds = 100 * held_by_other_sources(part) / len(part.cells)
    return len(part.cells) if holds >= HOLDS else min(len(part.by_source), ENOUGH_HELD_OUT - 1)


def held_by_other_sources(part: Judged) -> int:
    """Return how many runs lie in the interval that all sources but their own make."""
    held = 0
    for source, own in part.by_source.items():
        low, high = _ends_of_sources(part.part("", [cell.table != source for cell in part.cells]))
        held += int(((np.exp(own.errors) >= low) & (np.exp(own.errors) <= high)).sum())
    return held


def _ends_of_sources(part: Judged) -> list[float]:
    """Return the 5 % and 95 % quantiles over sources that count alike, however many runs each has."""
    sizes = {source: len(own.cells) for source, own in part.by_source.items()}
    weights = np.array([1 / sizes[cell.table] for cell in part.cells])
    order = np.argsort(part.errors)
    speeds, upto = np.exp(part.errors)[order], np.cumsum(weights[order]) / len(sizes)
    low, high = (speeds[min(int(np.searchsorted(upto, share)), len(speeds) - 1)] for share in (0.05, 0.95))
    return [round(float(low), 3), round(float(high), 3)]


def _ends(errors: Vector) -> list[float]:
    """Return the conformal ends: the quantiles of n + 1 runs, of which the next one is the last.

    A step that was predicted to be longer than it is means a speed above the prediction.
    """
    n = len(errors)
    shares = (min(1.0, max(0.0, share)) for share in (0.05 - 0.95 / n, 0.95 * (n + 1) / n))
    return [round(float(np.exp(np.quantile(errors, share))), 3) for share in shares]


def _holding(judged: Judged) -> Iterator[Figure]:
    """Yield how often the interval held the speed, each method judged by the errors of the others."""
    for task in ("pretrain", "finetune"):
        part = judged.part(task, [cell.task == task for cell in judged.cells])
        held = 0
        for method in {cell.method for cell in part.cells}:
            out = np.array([cell.method == method for cell in part.cells])
            low, high = _ends(part.errors[~out])
            speeds = np.exp(part.errors[out])
            held += int(((speeds >= low) & (speeds <= high)).sum())
        yield held_rate(f"{task}: 90 % intervals that hold", held, len(part.cells))
