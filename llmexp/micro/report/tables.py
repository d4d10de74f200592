"""The tables of every point of a run of microbenchmarks, by family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llmexp.micro.families.base import Family
from llmexp.micro.limits import cache_bytes, is_beyond_cache
from llmexp.micro.plan.micro_plan import TIMES_CACHE, MicroPlan
from llmexp.micro.points import DURING
from llmexp.micro.report.units import in_bytes, in_seconds, prefix_of
from llmexp.record.digits import rounded
from llmexp.record.result import ResultPoint
from llmexp.record.what_ran import WhatRan
from llmexp.registry import get_family
from llmexp.report.columns import Column, ReportTable
from llmexp.report.references.beside import Beside
from llmexp.report.row import Row

FEW, CACHED = "*", "†"
# With blanks that no renderer breaks.
SPREAD = "p5\u00a0to\u00a0p95"
TIME = "time of a call, µs"
_WORDS = ("family", "kind", "dtype", "what_ran")


def point_tables(row: Row, beside: Beside) -> Iterator[ReportTable]:
    """Yield a table for each family of a run's points, with what references show beside them."""
    families: dict[str, list[ResultPoint]] = {}
    for point in row.result.points if row.result else ():
        families.setdefault(point.params["family"], []).append(point)
    for family, points in families.items():
        yield ReportTable(
            get_family(family).title, list(_columns(points, row, beside)), list(_legend(points, row, beside))
        )


def heading_of(name: str, family: Family[Any], points: Sequence[ResultPoint]) -> tuple[str, float]:
    """Return the heading of a quantity with the unit that its largest value wants, and the unit's size."""
    if name == "time_s":
        return TIME, 1e-6
    prefix, divisor = prefix_of(max((_mean(point, name) or 0.0 for point in points), default=0.0))
    return family.headings[name].format(prefix), divisor


def percent_of_peak(point: ResultPoint, row: Row) -> float | None:
    """Return FLOP/s or bytes/s in percent of the hardware's peak; None where it is not known, or the cache's rate."""
    if _cached(point, row):
        return None
    family, kind, dtype = _family(point), point.params["kind"], point.params.get("dtype", "")
    for name in family.headings:
        peak, rate = family.peak(name, kind, dtype, row.plan.config.hardware), _mean(point, name)
        if peak and rate is not None:
            return 100 * rate / peak
    return None


def _columns(points: Sequence[ResultPoint], row: Row, beside: Beside) -> Iterator[Column]:
    if len({point.params["kind"] for point in points}) > 1:
        yield Column("kind", tuple(point.params["kind"] for point in points), left=True)
    for name in ("dtype", *_sizes(points)):
        cells = tuple(_size(name, point.params.get(name)) for point in points)
        if any(cells):
            yield Column(name, cells, left=name == "dtype")
    yield Column("median time", tuple(_time(point) for point in points))
    yield Column(SPREAD, tuple(_spread(point, row) for point in points))
    family = _family(points[0])
    for name in family.headings:
        if any(name in point.metrics for point in points):
            header, divisor = heading_of(name, family, points)
            yield Column(header, tuple(_rate(point, name, divisor, row) for point in points))
    percents = [percent_of_peak(point, row) for point in points]
    if any(percents):
        yield Column("% of peak", tuple("" if each is None else f"{each:.1f}" for each in percents))
    yield from beside.columns_of_points(points, row)
    if any("what_ran" in point.params for point in points):
        yield Column("ran", tuple(point.params.get("what_ran", "") for point in points), left=True)


def _legend(points: Sequence[ResultPoint], row: Row, beside: Beside) -> Iterator[str]:
    if any(_few(point, row) for point in points):
        yield f"{FEW}: fewer than {_wanted(row)} samples fit into measure.point_limit_s"
    for size in dict.fromkeys(_cache_bytes(point, row) for point in points if _cached(point, row)):
        yield f"{CACHED}: the cache's rate; the data are less than {TIMES_CACHE} times its {in_bytes(size or 0)}"
    yield from beside.legend_of_points(points, row)
    if any(metric and metric.std_between_repeats is not None for point in points for metric in point.metrics.values()):
        yield "±: standard deviation between repeats, in fresh processes"
    for problem in dict.fromkeys(point.problem for point in points if point.problem):
        yield f"not measured: {problem}"


def _rate(point: ResultPoint, name: str, divisor: float, row: Row) -> str:
    value = _mean(point, name)
    return "" if value is None else rounded(value / divisor) + f" {CACHED}" * _cached(point, row)


def _cached(point: ResultPoint, row: Row) -> bool:
    """Tell whether memory would limit a point, whose data are known to be no larger than caches may hold."""
    return _cache_bytes(point, row) is not None and not is_beyond_cache(point, _what_ran(row))


def _cache_bytes(point: ResultPoint, row: Row) -> int | None:
    return cache_bytes(point, _what_ran(row))


def _what_ran(row: Row) -> WhatRan:
    return row.result.what_ran if row.result else WhatRan()


def _family(point: ResultPoint) -> Family[Any]:
    return get_family(point.params["family"])


def _sizes(points: Sequence[ResultPoint]) -> list[str]:
    return list(dict.fromkeys(name for point in points for name in point.params if name not in _WORDS))


def _size(name: str, value: object) -> str:
    if not isinstance(value, int):
        return "" if value is None else str(value)
    return in_bytes(value) if name == "bytes" else f"{value:,}"


def _time(point: ResultPoint) -> str:
    time = point.metrics.get("time_s")
    if time is None:
        return "ended here" if point.problem == DURING else "-"
    between = time.std_between_repeats
    return in_seconds(time.mean) + (f" ± {in_seconds(between)}" if between is not None else "")


def _spread(point: ResultPoint, row: Row) -> str:
    low, high = _mean(point, "time_p5_s"), _mean(point, "time_p95_s")
    mark = f" {FEW}" if _few(point, row) else ""
    return "" if low is None or high is None else f"{in_seconds(low)} to {in_seconds(high)}{mark}"


def _few(point: ResultPoint, row: Row) -> bool:
    return bool(_count(point)) and _count(point) < _wanted(row)


def _wanted(row: Row) -> int:
    assert isinstance(row.plan, MicroPlan)
    return row.plan.config.measure.samples


def _count(point: ResultPoint) -> float:
    return _mean(point, "samples") or 0.0


def _mean(point: ResultPoint, name: str) -> float | None:
    metric = point.metrics.get(name)
    return metric.mean if metric else None
