"""The table of loads: every load point of every run, with throughput and latencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from llmexp.plan.serving_plan import ServingPlan
from llmexp.record.result import ResultPoint
from llmexp.report.columns import Column, Detail
from llmexp.report.row import Row
from llmexp.tasks.serving.verdicts import LOAD, OBJECTIVE, knee_of

PAIR = "p50\u00a0/\u00a0p99"
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "inter_token": "ITL", "end_to_end": "end to end"}
LEGEND = (
    "TTFT: time to first token; TPOT: time per output token after the first; ITL: time between two tokens; all "
    "but the last two count from when a request was due, not from when it was sent"
)


_ANSWERS = {"kept_up": "yes", "kept": "yes", "overloaded": "no", "missed": "no", "unknown": "?"}


@dataclass(frozen=True)
class Load:
    """A load point of a run."""

    row: Row
    name: str
    point: ResultPoint

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric over repeats; None where there is none."""
        found = self.point.metrics.get(metric)
        return found.mean if found else None


def loads_of(rows: Sequence[Row]) -> list[Load]:
    """Return the load points of all runs that have results."""
    found = []
    for row in rows:
        assert isinstance(row.plan, ServingPlan)
        points = row.result.points if row.result else []
        found += [Load(row, str(load), point) for load, point in zip(row.plan.points, points, strict=False)]
    return found


def loads_table(rows: Sequence[Row], label: Callable[[Row], str]) -> Detail | None:
    """Return the table of all load points; None where there is none."""
    loads = loads_of(rows)
    if not loads:
        return None
    problems = list(dict.fromkeys(load.point.problem for load in loads if load.point.problem))
    legend = [LEGEND, *_knees(rows, label), *(f"not measured: {problem}" for problem in problems)]
    return Detail("load points", list(_columns(loads, label)), legend)


def three_digits(value: float | None) -> str:
    """Return a number with three significant digits; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _knees(rows: Sequence[Row], label: Callable[[Row], str]) -> Iterator[str]:
    """Yield between which rates each run's server stopped to keep up, and what is not known of its loads."""
    for row in rows:
        points = row.result.points if row.result else []
        if found := knee_of(points):
            within = " within serve.slo" if any(OBJECTIVE in point.verdicts for point in points) else ""
            yield f"knee, {label(row)} keeps up{within}: {found}"
    for load in loads_of(rows):
        for verdict in load.point.verdicts.values():
            if verdict.answer == "unknown":
                yield f"?, {label(load.row)} at {load.name}: {'; '.join(verdict.reasons)}"


def _columns(loads: Sequence[Load], label: Callable[[Row], str]) -> Iterator[Column]:
    if len({load.row.id for load in loads}) > 1:
        yield Column("run", tuple(label(load.row) for load in loads), left=True)
    yield Column("load", tuple(load.name for load in loads), left=True)
    yield _column("requests/s", loads, lambda load: three_digits(load.mean("requests_per_s")) or "-")
    yield _column("output tokens/s", loads, lambda load: three_digits(load.mean("output_tokens_per_s")))
    for kind, words in LATENCIES.items():
        yield _column(f"{words}, ms {PAIR}", loads, lambda load, kind=kind: _pair(load, kind))  # type: ignore[misc]
    if any(load.point.verdicts for load in loads):
        yield _column("kept up", loads, lambda load: _answer(load, LOAD))
    if any(OBJECTIVE in load.point.verdicts for load in loads):
        yield _column("kept serve.slo", loads, lambda load: _answer(load, OBJECTIVE))
    if any(load.mean("goodput_per_s") is not None for load in loads):
        yield _column("goodput, requests/s", loads, lambda load: three_digits(load.mean("goodput_per_s")))
    if any(load.mean("failed_requests") for load in loads):
        yield _column("failed", loads, lambda load: three_digits(load.mean("failed_requests")))


def _column(header: str, loads: Sequence[Load], cell: Callable[[Load], str]) -> Column:
    return Column(header, tuple(cell(load) for load in loads))


def _answer(load: Load, question: str) -> str:
    judged = load.point.verdicts.get(question)
    return _ANSWERS[judged.answer] if judged else ""


def _pair(load: Load, kind: str) -> str:
    found = [load.mean(f"{kind}_p{percent}_s") for percent in (50, 99)]
    known = [three_digits(seconds * 1e3) for seconds in found if seconds is not None]
    return "\u00a0/\u00a0".join(known)
