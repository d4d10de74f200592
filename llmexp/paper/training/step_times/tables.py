"""The paper's tables V to VIII and XIII to XVI in the paper's layout, with our runs beside its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from llmexp.paper.printed import SOURCE
from llmexp.paper.printed import breakdowns as paper
from llmexp.paper.printed.breakdowns import PaperFigure, PaperTable, breakdown_tables
from llmexp.paper.training.step_times.matching import Place, differences, said_once
from llmexp.paper.training.step_times.measured import Ours, measured
from llmexp.paper.views.notes import Notes
from llmexp.record.result import RunStatus
from llmexp.report.columns import Column, ReportTable
from llmexp.report.row import OOM
from llmexp.training.report.row import TrainingRow

_IN_SECONDS = (paper.COPIES, paper.ALL_REDUCE, paper.COMMUNICATION)
NAIVE = "Naive"


@dataclass(frozen=True)
class Line:
    """A line of a table: the paper's figure, the run that stands beside it, and what that run measured."""

    figure: PaperFigure
    row: TrainingRow
    ours: Ours

    @property
    def differences(self) -> list[str]:
        """In what the run differs from the paper's."""
        return differences(self.row, self.figure)

    @property
    def is_another_method(self) -> bool:
        """Tell whether the paper prints this figure of another method, which may have been this one."""
        return self.row.method != self.figure.methods[0]

    @property
    def times_paper(self) -> float | None:
        """Our time over the paper's; None where either is missing or the run is not the paper's."""
        ours_ms, papers_ms = self.ours.time_ms, self.figure.time_ms
        return ours_ms / papers_ms if ours_ms and papers_ms and not self.differences else None


def paper_tables(place: Place) -> list[tuple[str, ReportTable]]:
    """Return each table that runs of this place answer, by its Roman number.

    All its methods were run, and some run was profiled.
    """
    found = ((table, list(_lines(table, place))) for table in breakdown_tables())
    return [(table.number, _beside(table, lines, place)) for table, lines in found if _answers(table, lines, place)]


def _lines(table: PaperTable, place: Place) -> Iterator[Line]:
    for figure in table.figures:
        for method in figure.methods:
            if row := place.run_of(figure, method):
                yield Line(figure, row, _ours(table, figure, row, place))


def _ours(table: PaperTable, figure: PaperFigure, row: TrainingRow, place: Place) -> Ours:
    run, naive = place.measured(row), place.run_of(figure, NAIVE)
    return measured(table.number, figure, run, place.measured(naive) if naive else None) if run else Ours()


def _answers(table: PaperTable, lines: Sequence[Line], place: Place) -> bool:
    asked = {figure.methods for figure in table.figures}
    return asked == {line.figure.methods for line in lines} and any(line.row.id in place.breakdowns for line in lines)


def _beside(table: PaperTable, lines: Sequence[Line], place: Place) -> ReportTable:
    unlike = [line.differences for line in lines]
    notes, with_times = Notes(), not all(unlike)
    unit, factor = ("s", 1e-3) if table.number in _IN_SECONDS else ("ms", 1.0)
    columns = [
        *_labels(table, lines),
        Column(unit, tuple(_time(line.ours.time_ms, factor) or _ending(line.row, place) for line in lines)),
        Column(table.share, tuple(_percent(line.ours.percent) for line in lines)),
        Column(
            f"paper {unit}", tuple(_papers_time(line.figure, factor, notes) if with_times else "" for line in lines)
        ),
        Column(f"paper {table.share}", tuple(_papers_percent(line.figure, notes) for line in lines)),
        Column("x paper", tuple(_time(line.times_paper, 1.0) for line in lines)),
    ]
    title = f"table {table.number} of the paper, {table.title}: {place.name}"
    others = "*: the paper has no such row" * any(line.is_another_method for line in lines)
    legend = [
        *_compared(unlike),
        others,
        table.remark,
        _overhead(lines, place),
        _of_device(table, lines, place),
        *notes.lines,
    ]
    shown = [column for column in columns if any(column.cells)]
    return ReportTable(title, shown, [line for line in legend if line])


def _labels(table: PaperTable, lines: Sequence[Line]) -> list[Column]:
    """Return the columns that name a line, with our method where the paper's may mean several."""
    columns = []
    for place, heading in enumerate(table.headings):
        told = [line.figure.labels[place] for line in lines]
        is_last = place == len(table.headings) - 1
        columns.append(Column(heading, tuple(told if is_last else _said_where_it_begins(told)), left=True))
    several = any(len(line.figure.methods) > 1 for line in lines)
    return [*columns, *([Column("ours", tuple(map(_own_method, lines)), left=True)] * several)]


def _own_method(line: Line) -> str:
    return f"{line.row.method} *" if line.is_another_method else line.row.method


def _said_where_it_begins(names: Sequence[str]) -> list[str]:
    return [name if name != before else "" for before, name in pairwise(["", *names])]


def _papers_time(figure: PaperFigure, factor: float, notes: Notes) -> str:
    """Return the paper's time, which bears the note where there is no percentage to bear it."""
    return _time(figure.time_ms, factor) + (notes.mark(figure.remark) if figure.percent is None else "")


def _papers_percent(figure: PaperFigure, notes: Notes) -> str:
    return "" if figure.percent is None else _percent(figure.percent) + notes.mark(figure.remark)


def _time(value: float | None, factor: float) -> str:
    """Return a time or a ratio with as many digits as the paper has for one of this size."""
    if value is None:
        return ""
    digits = 1 if abs(value * factor) >= 100 else 2 if abs(value * factor) >= 1 else 3
    return f"{value * factor:,.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _ending(row: TrainingRow, place: Place) -> str:
    """Return how a run ended that has no breakdown."""
    if row.id in place.breakdowns:
        return ""
    return {OOM: "-", RunStatus.SUCCESS.value: "not traced"}.get(row.state, row.state)


def _compared(unlike: Sequence[list[str]]) -> list[str]:
    """Say what may be compared with the paper."""
    told = ", ".join(said_once(unlike))
    if all(unlike):
        return [f"NOT the paper's run ({told}): shares stand side by side for their pattern, and times do not compare"]
    profiled = f"paper: {SOURCE}; ours: profiled steps; x paper: our time over the paper's"
    return [profiled + (f", where the run is the same; elsewhere: {told}" if told else "")]


def _overhead(lines: Sequence[Line], place: Place) -> str:
    """Say how much longer profiled steps took than measured ones: shares of far longer ones are doubtful."""
    rows = {line.row.id: line.row for line in lines}.values()
    found = ((row, place.measured(row), row.metric("step_time_s")) for row in rows)
    told = [f"{row.method} {run.step_ms / step.mean / 10 - 100:+.0f}%" for row, run, step in found if run and step]
    return f"profiled step over measured one: {', '.join(told)}" if told else ""


def _of_device(table: PaperTable, lines: Sequence[Line], place: Place) -> str:
    known = [place.breakdowns[line.row.id] for line in lines if line.row.id in place.breakdowns]
    on_host = not any(rank.on_device for each in known for rank in each.ranks)
    return "nothing of ours: on a CPU there is no device to copy to" if table.number == paper.COPIES and on_host else ""
