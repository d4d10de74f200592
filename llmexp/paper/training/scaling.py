"""Figure 4 of the paper: tokens/s and scaling efficiency over GPUs, beside what its text gives."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from llmexp.paper.printed import PAPER_FIGURE, SOURCE, read_table
from llmexp.paper.training.cell import scaling_of, settings_unlike
from llmexp.paper.training.cells.coverage import shared_words
from llmexp.paper.views.names import TITLES, experiment_of, words_of
from llmexp.paper.views.notes import Notes
from llmexp.record.digits import rounded
from llmexp.record.result import RunStatus
from llmexp.report.columns import Column, ReportTable
from llmexp.report.notes import ending_note
from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.report.references.view import View
from llmexp.report.row import OOM
from llmexp.report.signs import doubt_sign
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.scaling_series import KINDS, Kind, ScalingSeries, scaling_legend, series_of

NAME = "fig04"
MODEL, METHOD, GPUS = "7b", "Q", (1, 2, 4, 8)
_OWN_KEYS = ("experiment", "hardware", "parallelism.dp", "batch.accumulation")


@dataclass(frozen=True)
class Scaled:
    """The runs of one model, method, machine and engine on several numbers of GPUs."""

    rows: tuple[TrainingRow, ...]

    @property
    def first(self) -> TrainingRow:
        """The run that names them."""
        return self.rows[0]

    @property
    def is_papers(self) -> bool:
        """Tell whether these are the paper's model and method."""
        return (self.first.model, self.first.method) == (MODEL, METHOD)

    @property
    def where(self) -> str:
        """What ran where."""
        row = self.first
        return f"{row.model} {row.method} on {row.hardware}, {row.comparison_key['engine']}"

    @property
    def gpus(self) -> list[int]:
        """The numbers of GPUs: the paper's four, and those that were run."""
        return sorted({*(row.processes for row in self.rows), *(GPUS if self.is_papers else ())})

    @property
    def series(self) -> dict[Kind, ScalingSeries]:
        """The first series of each kind."""
        found: dict[Kind, ScalingSeries] = {}
        for series in series_of(self.rows):
            found.setdefault(series.kind, series)
        return found

    def run_of(self, kind: Kind, gpus: int) -> TrainingRow | None:
        """Return the run of a kind of scaling on so many GPUs: that of the series, or one that was not measured."""
        series = self.series.get(kind)
        own = [row for row in series.rows if row.processes == gpus] if series else []
        ended = [row for row in self.rows if row.processes == gpus and row.state != RunStatus.SUCCESS]
        alike = [row for row in ended if (row.batch.accumulation == 1) == (kind == "weak")]
        return next(iter([*own, *alike]), None)


def scaling_views(rows: Sequence[TrainingRow], asked: Container[str]) -> list[View]:
    """Return the figure for each model, method, machine and engine of which a series over GPUs was run."""
    groups: dict[tuple[str, ...], list[TrainingRow]] = {}
    for row in rows:
        if _may_stand(row, asked):
            key = (row.model, row.method, row.hardware, row.comparison_key["engine"], row.comparison_key["precision"])
            groups.setdefault(key, []).append(row)
    return [_view(Scaled(tuple(found))) for found in groups.values() if len({row.processes for row in found}) > 1]


def _may_stand(row: TrainingRow, asked: Container[str]) -> bool:
    is_paper = (row.model, row.method, row.comparison_key["task"]) == (MODEL, METHOD, "pretrain")
    return not row.is_control and (is_paper or NAME in asked or row.plan.config.sweep.name == experiment_of(NAME))


def _view(scaled: Scaled) -> View:
    notes = Notes()
    columns = [Column("GPUs", tuple(map(str, scaled.gpus)))]
    for kind in KINDS:
        rows = [scaled.run_of(kind, gpus) for gpus in scaled.gpus]
        if any(rows):
            columns += _columns(scaled, kind, rows, notes)
    legend = [_coverage(scaled), *_unlike(scaled), *scaling_legend(list(scaled.series.values()))]
    legend += figure_legend(scaled.series.values())
    legend += [_far_text(scaled)] if scaled.is_papers else []
    title = f"{words_of(NAME)}, {TITLES[NAME]}: {scaled.where}"
    shown = [column for column in columns if any(column.cells)]
    return View(
        name=NAME,
        table=ReportTable(title, shown, [line for line in (*legend, *notes.lines) if line]),
        answers=[f"{_coverage(scaled)}."],
        missing=_missing(scaled),
        charts=_charts(scaled),
        rows=scaled.rows,
    )


def _columns(scaled: Scaled, kind: Kind, rows: Sequence[TrainingRow | None], notes: Notes) -> list[Column]:
    series = scaled.series.get(kind)
    efficiency = [series.efficiency_of(row).cell(1, 100) if series and row and row.rate else "" for row in rows]
    papers = [scaling_of(row) if row and kind == "weak" else None for row in rows]
    told = [f"{each.percent:.1f}{' ?' * bool(each.note)}{notes.mark(each.note)}" if each else "" for each in papers]
    return [
        Column(f"{kind} tokens/s", tuple(_speed(row, notes) for row in rows)),
        Column(f"{kind} scaling %", tuple(efficiency)),
        Column("paper scaling %", tuple(told)),
    ]


def _speed(row: TrainingRow | None, notes: Notes) -> str:
    if row is None:
        return "no run"
    if row.rate:
        return rounded(row.rate.mean) + (f" {doubt_sign(row)}" if row.doubt else "")
    return "-" if row.state == OOM else row.state + notes.mark(ending_note(row))


def _coverage(scaled: Scaled) -> str:
    measured = sum(bool(row and row.rate) for gpus in scaled.gpus for row in [scaled.run_of("weak", gpus)])
    return f"{measured} of {len(scaled.gpus)} numbers of GPUs measured with one batch a GPU"


def _unlike(scaled: Scaled) -> list[str]:
    row = scaled.first
    if not scaled.is_papers:
        return [f"NOT the paper's runs, which are of {MODEL} with {METHOD}: only the pattern can be compared"]
    unlike = settings_unlike(row)
    return [f"unlike the paper's runs: {', '.join(unlike)}"] if unlike else []


def _far_text(scaled: Scaled) -> str:
    """Say what the text gives where no cell has it."""
    known = {row["hardware"] for row in read_table("figure04_scaling")}
    return f"paper: {SOURCE}, {PAPER_FIGURE}" if scaled.first.hardware not in known else ""


def figure_legend(found: Iterable[ScalingSeries]) -> list[str]:
    """Say where the paper's efficiencies are from, if any of these rows has one."""
    has_any = any(scaling_of(row) for series in found for row in series.rows)
    return [f"paper scaling %: {SOURCE}, {PAPER_FIGURE}"] if has_any else []


def _missing(scaled: Scaled) -> list[str]:
    """Return the command for the numbers of GPUs that have no run; it plans both kinds of scaling."""
    lacking = [gpus for gpus in scaled.gpus if not scaled.run_of("weak", gpus)]
    words = [f"experiment={experiment_of(NAME)}", f"hardware={scaled.first.hardware}"]
    words += [f"parallelism.dp={','.join(map(str, lacking))}", *shared_words(scaled.rows, _OWN_KEYS)]
    return [shlex.join(["python", "-m", "llmexp", *words])] if lacking else []


def _charts(scaled: Scaled) -> list[Chart]:
    traces = []
    for kind, series in scaled.series.items():
        rows = sorted(series.rows, key=lambda row: row.processes)
        x: list[float | str] = [row.processes for row in rows]
        ratios = [series.efficiency_of(row) for row in rows]
        intervals, signs = [ratio.ends(100) for ratio in ratios], [ratio.sign for ratio in ratios]
        percent = [100 * ratio.value for ratio in ratios]
        traces.append(ChartTrace(f"{kind} scaling", x, percent, (), intervals, labels=signs))
    papers = [(row.processes, found.percent) for row in scaled.rows if (found := scaling_of(row))]
    if papers:
        traces.append(ChartTrace("the paper", [x for x, _ in papers], [y for _, y in papers], (), (), "markers"))
    return [Chart(f"Scaling of {scaled.where}", "GPUs", "efficiency, %", traces)] if traces else []
