"""Figures 7 to 10: the latencies under the paper's load, engine beside engine and machine beside machine."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from llmexp.paper.printed.serving import statements_on
from llmexp.paper.views.names import TITLES, experiment_of, words_of
from llmexp.record.digits import rounded
from llmexp.report.columns import ReportTable
from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.report.references.view import View
from llmexp.report.row import Row
from llmexp.serving.analysis.request_latency import latencies
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.report.distributions import lines_of

SHARES_PERCENT = (25, 50, 75, 90, 100)
MACHINES = ("a800", "rtx4090", "rtx3090")
_MODELS = ("7b", "13b", "70b")
_LATENCY = "end-to-end latency (s)"


@dataclass(frozen=True)
class _Figure:
    """Runs of one of the paper's models, or of all; either machines or engines stand beside each other."""

    model: str | None
    of_machines: bool


_FIGURES = {
    "fig07": _Figure("7b", False),
    "fig08": _Figure("13b", True),
    "fig09": _Figure(None, False),
    "fig10": _Figure(None, True),
}


@dataclass(frozen=True)
class _Served:
    """A run under the paper's load: how long each answer took, in rising order, of how many requests."""

    row: Row
    model: str
    times_s: Sequence[float]
    requests: int

    @property
    def engine(self) -> str:
        return self.row.plan.config.engine.name

    def until_s(self, percent: int) -> float | None:
        """Return when this share of all requests was answered; None where it never was."""
        place = ceil(self.requests * percent / 100)
        return self.times_s[place - 1] if place <= len(self.times_s) else None


def latency_views(rows: Sequence[Row], asked: Container[str] = ()) -> list[View]:
    """Return the asked ones of figures 7 to 10; without any, figures 9 and 10 where two stand beside each other."""
    served = [found for row in rows if (found := _served(row))]
    return [view for name, figure in _FIGURES.items() for view in _views(name, figure, served, name in asked)]


def _served(row: Row) -> _Served | None:
    lines = lines_of([row], lambda _: "")
    if not lines or not isinstance(row.plan, ServingPlan):
        return None
    times_s = sorted(latencies(lines[0].samples)["end_to_end"])
    requests = row.plan.config.serve.requests * len(row.folder.repeats())
    return _Served(row, row.comparison_key["model"], times_s, max(requests, len(times_s)))


def _views(name: str, figure: _Figure, served: Sequence[_Served], is_asked: bool) -> Iterator[View]:
    """Yield the figure; another model than the paper's stands for whichever is asked."""
    found = [run for run in served if figure.model in (None, run.model) or run.model not in _MODELS]
    groups: dict[tuple[str, str], list[_Served]] = {}
    for run in found:
        groups.setdefault((run.model, run.engine if figure.of_machines else run.row.hardware), []).append(run)
    if found and (is_asked or (figure.model is None and any(_compares(figure, group) for group in groups.values()))):
        ordered = [run for key in sorted(groups) for run in groups[key]]
        charts = [_chart(name, figure, key, groups[key]) for key in sorted(groups)]
        missing = [machine for machine in MACHINES if machine not in {run.row.hardware for run in found}]
        commands = [f"python -m llmexp experiment={experiment_of(name)} hardware={machine}" for machine in missing]
        shown = commands if figure.of_machines else ()
        yield View(name, _table(name, ordered), charts=charts, missing=shown, rows=[run.row for run in ordered])


def _compares(figure: _Figure, group: Sequence[_Served]) -> bool:
    return len({run.row.hardware if figure.of_machines else run.engine for run in group}) > 1


def _table(name: str, runs: Sequence[_Served]) -> ReportTable:
    headers = ["model", "engine", "machine", *(f"{share} %" for share in SHARES_PERCENT)]
    lines = [
        [run.model, run.engine, run.row.hardware, *map(_seconds, map(run.until_s, SHARES_PERCENT))] for run in runs
    ]
    table = ReportTable.of_rows(f"{words_of(name)}, {TITLES[name]}", headers, lines, headers[3:])
    hardware, models = frozenset(run.row.hardware for run in runs), frozenset(run.model for run in runs)
    said = [str(each) for each in statements_on(hardware, models) if each.figure == str(int(name[3:]))]
    meaning = "25 %, …: the seconds after which this share of all requests was answered; -: never"
    return ReportTable(table.title, table.columns, [meaning, *said])


def _seconds(time_s: float | None) -> str:
    return "-" if time_s is None else rounded(time_s)


def _chart(name: str, figure: _Figure, group: tuple[str, str], runs: Sequence[_Served]) -> Chart:
    traces = []
    for run in runs:
        shares = [100 * (place + 1) / run.requests for place in range(len(run.times_s))]
        named = run.row.hardware if figure.of_machines else run.engine
        traces.append(ChartTrace(named, run.times_s, shares, mode="lines"))
    return Chart(f"{words_of(name)}: {' on '.join(group)}", _LATENCY, "% of requests", traces)
