"""The page's charts of served loads: throughput against interactivity, latency over throughput, distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from llmexp.analysis.inference import mean_interval
from llmexp.report.columns import Whisker
from llmexp.report.page.chart import MOST_LINES, Chart, ChartTrace
from llmexp.report.row import Row
from llmexp.report.signs import doubt_sign
from llmexp.serving.analysis.request_latency import latencies
from llmexp.serving.report.distributions import PANELS, lines_of
from llmexp.serving.report.interactivity import TOKENS_LABEL, USER_LABEL, user_speeds
from llmexp.serving.report.loads import Load, loads_of

Label = Callable[[Row], str]


def serving_charts(rows: Sequence[Row], label: Label) -> Iterator[Chart]:
    """Yield the charts for which there are loads."""
    loads = [load for load in loads_of(rows) if load.mean("requests_per_s")]
    yield from _interactivity(loads, label)
    note = "A point is a load; latencies count from when a request was due."
    for metric, words in (("ttft", "Time to first token"), ("end_to_end", "End-to-end latency")):
        traces = [
            trace
            for percentile in ("p50", "p99")
            for trace in _latencies(loads, label, f"{metric}_{percentile}_s", percentile)
        ]
        if traces:
            yield Chart(f"{words} over throughput", "answered requests/s", "ms", traces[:MOST_LINES], note)
    yield from _distributions(rows, label)


def _interactivity(loads: Sequence[Load], label: Label) -> Iterator[Chart]:
    """Yield tokens a second of a device over those that one user sees, for two loads or more."""
    traces = []
    for row, points in user_speeds(loads):
        x, y = [point.user for point in points], [point.tokens for point in points]
        names = [point.load.name for point in points]
        intervals = [point.interval for point in points]
        traces.append(ChartTrace(_named(row, label), x, y, names, intervals, labels=names))
    if sum(len(trace.x) for trace in traces) > 1:
        note = "A point is a load, a line a configuration; up and right is better."
        yield Chart("Throughput against interactivity", USER_LABEL, TOKENS_LABEL, traces[:MOST_LINES], note)


def _latencies(loads: Sequence[Load], label: Label, metric: str, percentile: str) -> Iterator[ChartTrace]:
    """Yield a latency over answered requests a second, a line a run."""
    by_run: dict[str, list[tuple[float, float, Load]]] = {}
    for load in loads:
        x, y = load.mean("requests_per_s"), load.mean(metric)
        if x is not None and y is not None:
            by_run.setdefault(_named(load.row, label), []).append((x, 1e3 * y, load))
    for name, points in by_run.items():
        points.sort(key=lambda point: point[:2])
        found = [load for *_, load in points]
        yield ChartTrace(
            f"{percentile}, {name}",
            [x for x, *_ in points],
            [y for _, y, _ in points],
            [f"{name} at {load.name}, {percentile}" for load in found],
            [_interval(load, metric, 1e3) for load in found],
            x_intervals=[_interval(load, "requests_per_s") for load in found],
        )


def _interval(load: Load, metric: str, factor: float = 1.0) -> Whisker | None:
    found = load.point.metrics.get(metric)
    return mean_interval(found, factor) if found else None


def _named(row: Row, label: Label) -> str:
    return f"{label(row)} {doubt_sign(row)}".rstrip()


def _distributions(rows: Sequence[Row], label: Label) -> Iterator[Chart]:
    """Yield the cumulative distribution of each kind of latency, a line a load."""
    lines = lines_of(rows, label)[:MOST_LINES]
    for kind, heading in PANELS.items() if lines else ():
        traces = []
        for line in lines:
            if not (times_s := sorted(latencies(line.samples)[kind])):
                continue
            shares = [100 * (place + 1) / len(times_s) for place in range(len(times_s))]
            traces.append(ChartTrace(line.label, times_s, shares, mode="lines"))
        named = heading.rpartition(" (")[0]
        if traces:
            yield Chart(f"Distribution of the {named}", heading, "% of requests", traces)
