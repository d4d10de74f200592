"""The tables of microbenchmarks: the limits of each run beside each other, and every point of a run by family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from llmexp.analysis.metric import MetricSpec
from llmexp.plan.micro_plan import MicroPlan
from llmexp.record.digits import rounded
from llmexp.record.result import ResultPoint
from llmexp.report.columns import Column, Detail
from llmexp.report.row import Row
from llmexp.tasks.micro.points import DURING
from llmexp.tasks.micro.report.paper import paper_columns, paper_legend
from llmexp.tasks.micro.report.units import in_bytes, in_seconds

FEW = "*"
# With blanks that no renderer breaks.
SPREAD = "p5\u00a0to\u00a0p95"
TITLES = {
    "gemm": "matrix products, [m, k] by [k, n]",
    "memory": "memory",
    "copies": "copies",
    "collectives": "collectives of all ranks",
    "attention": "causal attention",
    "operators": "operators that memory limits, forward",
    "optimizer": "the optimizer's step",
    "disk": "disk",
}
# The rates in the order of the columns, with the words of their headings.
RATES = {
    "flops_per_s": "{}FLOP/s",
    "bytes_per_s": "{}B/s",
    "algbw_bytes_per_s": "algbw {}B/s",
    "busbw_bytes_per_s": "busbw {}B/s",
}
TIME = "time of a call, µs"
_WORDS = ("family", "kind", "dtype", "what_ran")


def limits_table(rows: Sequence[Row], specs: Mapping[str, MetricSpec], label: Callable[[Row], str]) -> Detail | None:
    """Return the limits that any of the runs measured, a column for each run; None where there is none."""
    measured = [row for row in rows if any(row.metric(name) for name in specs)]
    shown = [spec for name, spec in specs.items() if any(row.metric(name) for row in measured)]
    if not shown:
        return None
    columns = [
        Column("limit", tuple(spec.help for spec in shown), left=True),
        *(Column(label(row), tuple(_limit(row, spec) for spec in shown)) for row in measured),
    ]
    return Detail("what this machine can do at most, of one rank while all are at work", columns, ())


def point_tables(row: Row) -> Iterator[Detail]:
    """Yield a table for each family of a run's points."""
    families: dict[str, list[ResultPoint]] = {}
    for point in row.result.points if row.result else ():
        families.setdefault(point.params["family"], []).append(point)
    for family, points in families.items():
        yield Detail(TITLES[family], list(_columns(points, row)), list(_legend(points, row)))


def heading_of(name: str, points: Sequence[ResultPoint]) -> tuple[str, float]:
    """Return the heading of a quantity with the unit that its largest value wants, and the unit's size."""
    if name == "time_s":
        return TIME, 1e-6
    prefix, divisor = _prefix(max((_mean(point, name) or 0.0 for point in points), default=0.0))
    return RATES[name].format(prefix), divisor


def _prefix(largest: float) -> tuple[str, float]:
    return ("T", 1e12) if largest >= 1e12 else ("G", 1e9)


def percent_of_peak(point: ResultPoint, row: Row) -> float | None:
    """Return FLOP/s or bytes/s in percent of the hardware's peak; None where the peak is not known."""
    hardware = row.plan.config.hardware
    if (flops := _mean(point, "flops_per_s")) is not None:
        peak = hardware.peak_flops_per_s.get(point.params["dtype"])
        return 100 * flops / peak if peak else None
    on_device = point.params["family"] in ("memory", "operators") or point.params["kind"] == "adamw_on_device"
    peak = hardware.memory_bandwidth_bytes_per_s if on_device else None
    moved = _mean(point, "bytes_per_s")
    return 100 * moved / peak if peak and moved else None


def _columns(points: Sequence[ResultPoint], row: Row) -> Iterator[Column]:
    if len({point.params["kind"] for point in points}) > 1:
        yield Column("kind", tuple(point.params["kind"] for point in points), left=True)
    for name in ("dtype", *_sizes(points)):
        cells = tuple(_size(name, point.params.get(name)) for point in points)
        if any(cells):
            yield Column(name, cells, left=name == "dtype")
    yield Column("median time", tuple(_time(point) for point in points))
    yield Column(SPREAD, tuple(_spread(point, row) for point in points))
    for name in RATES:
        if any(name in point.metrics for point in points):
            header, divisor = heading_of(name, points)
            values = [_mean(point, name) for point in points]
            yield Column(header, tuple("" if value is None else rounded(value / divisor) for value in values))
    percents = [percent_of_peak(point, row) for point in points]
    if any(percents):
        yield Column("% of peak", tuple("" if each is None else f"{each:.1f}" for each in percents))
    yield from paper_columns(points, row)
    if any("what_ran" in point.params for point in points):
        yield Column("ran", tuple(point.params.get("what_ran", "") for point in points), left=True)


def _legend(points: Sequence[ResultPoint], row: Row) -> Iterator[str]:
    if any(_few(point, row) for point in points):
        yield f"{FEW}: fewer than {_wanted(row)} samples fitted measure.point_limit_s"
    yield from paper_legend(points)
    if any(metric and metric.std_between_repeats is not None for point in points for metric in point.metrics.values()):
        yield "±: standard deviation between repeats, in fresh processes"
    for problem in dict.fromkeys(point.problem for point in points if point.problem):
        yield f"not measured: {problem}"


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


def _limit(row: Row, spec: MetricSpec) -> str:
    metric = row.metric(spec.name)
    if metric is None:
        return ""
    prefix, divisor = _prefix(metric.mean)
    return f"{rounded(metric.mean / divisor)} {prefix}{spec.unit.replace('bytes', 'B')}"


def _mean(point: ResultPoint, name: str) -> float | None:
    metric = point.metrics.get(name)
    return metric.mean if metric else None
