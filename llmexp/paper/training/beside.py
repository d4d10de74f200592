"""What the paper shows in the section of runs that train."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from llmexp.paper.printed import SOURCE
from llmexp.paper.training.cell import (
    cell_note,
    cell_of,
    memory_over_paper,
    over_paper,
    scaling_note,
    scaling_of,
    unlike_note,
)
from llmexp.paper.training.cells.lines import tables
from llmexp.paper.training.cells.views import cell_views
from llmexp.paper.training.scaling import figure_legend, scaling_views
from llmexp.paper.training.step_times.figure5 import Figure5, figure5, figure5_table
from llmexp.paper.training.step_times.matching import Place as Machine
from llmexp.paper.training.step_times.matching import places
from llmexp.paper.training.step_times.tables import paper_tables
from llmexp.paper.views.names import ROMAN, experiment_of
from llmexp.record.digits import three_digits
from llmexp.report.columns import Column, ReportTable
from llmexp.report.legend import applying
from llmexp.report.notes import mark
from llmexp.report.picture import named_beside
from llmexp.report.references.beside import WEAK_SCALING_PERCENT, Beside, ColumnPlace
from llmexp.report.references.view import View
from llmexp.report.row import OOM, Row
from llmexp.training.report.memory_column import memory_unit
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.section import TrainingSection

LAYOUT = "in the paper's layout, with the cells that are missing: llmexp report paper"


@dataclass(frozen=True)
class TrainingBeside(Beside):
    """The paper's cells of the same work, its figures 4 and 5, and its tables on a step's time."""

    section: TrainingSection

    def columns(self, place: ColumnPlace) -> Sequence[Column]:
        """Return the paper's efficiency beside ours, and its cells with the ratios to them."""
        if place == "scaling":
            return [self._column("paper scaling %", self._efficiency, 8)]
        if place != "values":
            return []
        unit, divisor = memory_unit(self.section)
        return [
            self._column("paper tokens/s", self._speed, 8),
            self._column("x paper", self._ratio, 7),
            self._column(f"paper {unit}", lambda row: _memory(row, divisor), 3),
            self._column(f"{unit} x paper", lambda row: _number(memory_over_paper(row), ".2f"), 1),
        ]

    def legend(self, place: ColumnPlace) -> Sequence[str]:
        """Return where the cells and the figure are from, and how the paper's layout is seen."""
        cells = [cell for row in self.section.rows if (cell := cell_of(row))]
        if place == "signs":
            has_oom = any(row.state == OOM for row in self.section.rows)
            return applying({"-: out of memory": any(cell.oom for cell in cells) and not has_oom})
        if place == "scaling":
            return figure_legend(self.section.series)
        if place == "end":
            return [LAYOUT] if self._sweeps else []
        numbers = " and ".join(sorted({cell.table for cell in cells}))
        said = f"paper: {SOURCE}, table {numbers}, 8 GPUs, its GB read as 10^9 bytes; x paper: ours over the paper's"
        return [said] if cells else []

    def notes_of(self, row: Row) -> Sequence[str]:
        """Return what is doubtful in the paper's cell, why there is no ratio to it, and what is odd in figure 4."""
        assert isinstance(row, TrainingRow)
        return cell_note(row), unlike_note(row), scaling_note(row)

    def values_of(self, row: Row) -> dict[str, Any]:
        """Return the paper's cell, and our figures over its."""
        assert isinstance(row, TrainingRow)
        cell, ratio = cell_of(row), over_paper(row)
        return {
            "paper_table": cell and cell.table,
            "paper_oom": cell and cell.oom,
            "paper_tokens_per_s": cell and cell.tokens_per_s,
            "tokens_per_s_over_paper": ratio and ratio.value,
            "paper_memory_bytes": cell and cell.memory_bytes,
            "peak_allocated_over_paper": memory_over_paper(row),
            "paper_note": cell and cell.note,
        }

    def mark_of(self, row: Row, metric: str) -> float | None:
        """Return the paper's tokens/s, bytes or percentage."""
        assert isinstance(row, TrainingRow)
        if metric == WEAK_SCALING_PERCENT:
            found = scaling_of(row)
            return found.percent if found else None
        cell = cell_of(row)
        known = {"tokens_per_s": cell.tokens_per_s, "peak_allocated_bytes": cell.memory_bytes} if cell else {}
        return known.get(metric)

    def marks(self, metric: str) -> str:
        """Return the paper's name where any of these rows has a cell, or a scaling efficiency."""
        find: Callable[[TrainingRow], object] = scaling_of if metric == WEAK_SCALING_PERCENT else cell_of
        return f"the paper ({SOURCE})" if any(map(find, self.section.rows)) else ""

    @property
    def tables(self) -> Sequence[ReportTable]:
        """The paper's tables on a step's time beside profiled runs, and figure 5."""
        return [table for _, table in self._step_times]

    @property
    def layouts(self) -> Sequence[ReportTable]:
        """The paper's tables cell by cell, of the sweeps of its experiments."""
        rows = [row for row in self.section.rows if row.plan.config.sweep.name in self._sweeps]
        return [view.table for view in cell_views(rows, ()) if experiment_of(view.name) in self._sweeps]

    def views(self, asked: Container[str] = ()) -> Sequence[View]:
        """Return tables II to IV and IX, figure 4, and what profiled runs answer of those on time."""
        rows = self.section.rows
        timed = [View(name, table, rows=rows) for name, table in self._step_times]
        return [*cell_views(rows, asked), *scaling_views(rows, asked), *timed]

    def draw(self, path: Path) -> list[Path]:
        """Draw figure 5 as <name>_figure5, one for each place that answers it."""
        from llmexp.paper.training.step_times.figure5_plot import draw_figure5

        written = []
        for number, found in enumerate(self._figures5):
            written.append(named_beside(path, f"figure5_{number + 1}" if number else "figure5"))
            draw_figure5(found, written[-1])
        return written

    @cached_property
    def _sweeps(self) -> set[str]:
        """The sweeps among these that are of the paper's tables on whole methods."""
        own = {row.plan.config.sweep.name for row in self.section.rows}
        return own & {experiment_of(table.name) for table in tables()}

    @cached_property
    def _machines(self) -> list[Machine]:
        return places(self.section.rows)

    @cached_property
    def _figures5(self) -> list[Figure5]:
        return [figure for machine in self._machines if (figure := figure5(machine))]

    @property
    def _step_times(self) -> Iterator[tuple[str, ReportTable]]:
        for machine in self._machines:
            yield from ((ROMAN[number], table) for number, table in paper_tables(machine))
        yield from (("fig05", figure5_table(figure)) for figure in self._figures5)

    def _column(self, header: str, cell: Callable[[TrainingRow], str], dispensable: int) -> Column:
        return Column(header, tuple(cell(row) for row in self.section.rows), dispensable=dispensable)

    def _efficiency(self, row: TrainingRow) -> str:
        found = scaling_of(row) if self.section.efficiency(row, "weak") is not None else None
        return _number(found.percent, ".1f") + mark(scaling_note(row), self.section.numbers) if found else ""

    def _speed(self, row: TrainingRow) -> str:
        cell = cell_of(row)
        if not cell:
            return ""
        return "-" if cell.oom else f"{cell.tokens_per_s:,.1f}" + mark(cell_note(row), self.section.numbers)

    def _ratio(self, row: TrainingRow) -> str:
        ratio = over_paper(row)
        return (ratio.cell() if ratio else "") + mark(unlike_note(row), self.section.numbers).lstrip()


def _memory(row: TrainingRow, divisor: float) -> str:
    cell = cell_of(row)
    if not cell:
        return ""
    return "-" if cell.memory_bytes is None else f"{cell.memory_bytes / divisor:,.1f}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else three_digits(value, form)
