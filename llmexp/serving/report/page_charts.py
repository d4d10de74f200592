"""The page's charts of served loads: latency over throughput, and throughput against interactivity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.report.row import Row
from llmexp.serving.report.loads import Load, loads_of

# Nobody tells more lines apart.
MOST_LINES = 12


def serving_charts(rows: Sequence[Row], label: Callable[[Row], str]) -> Iterator[Chart]:
    """Yield latencies at the median and the 99th percentile over answered requests, and tokens/s over a user's."""
    loads = [load for load in loads_of(rows) if load.mean("requests_per_s")]
    note = "A point is a load; latencies count from when a request was due."
    for metric, words in (("ttft", "Time to first token"), ("end_to_end", "End-to-end latency")):
        traces = [
            trace
            for percentile in ("p50", "p99")
            for trace in _traces(loads, label, percentile, _latency(f"{metric}_{percentile}_s"))
        ]
        if traces:
            yield Chart(f"{words} over throughput", "answered requests/s", "ms", traces[:MOST_LINES], note)


def _latency(metric: str) -> Callable[[Load], float | None]:
    def milliseconds(load: Load) -> float | None:
        seconds = load.mean(metric)
        return None if seconds is None else 1e3 * seconds

    return milliseconds


def _traces(
    loads: Sequence[Load], label: Callable[[Row], str], percentile: str, value: Callable[[Load], float | None]
) -> Iterator[ChartTrace]:
    by_run: dict[str, list[tuple[float, float, str]]] = {}
    for load in loads:
        x, y = load.mean("requests_per_s"), value(load)
        if x is not None and y is not None:
            by_run.setdefault(label(load.row), []).append((x, y, load.name))
    for name, points in by_run.items():
        points.sort()
        told = [f"{name} at {load}, {percentile}" for *_, load in points]
        yield ChartTrace(f"{name}, {percentile}", [x for x, *_ in points], [y for _, y, _ in points], told)
