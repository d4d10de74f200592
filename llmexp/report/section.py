"""A section of a report: the runs of one kind, with their table, their lines of CSV and their pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from llmexp.analysis.inference import mean_interval
from llmexp.analysis.metric import MetricSpec
from llmexp.record.result import Metric
from llmexp.registry import get_task, references
from llmexp.report.cells import mean_of, own_words, rate_cell
from llmexp.report.columns import Bars, Column, ReportTable
from llmexp.report.control import control_lines
from llmexp.report.csv_line import csv_line, identity
from llmexp.report.legend import how_measured, legend_of_runs, legend_of_signs, small
from llmexp.report.notes import beside_note, ending_note, folded, interruption_note, power_note
from llmexp.report.other_trainings import other_trainings
from llmexp.report.page.answer import answers, leaders
from llmexp.report.page.chart import Chart, Matrix
from llmexp.report.references.beside import Beside, Together
from llmexp.report.repeat import anywhere
from llmexp.report.row import HERE, OOM, Row
from llmexp.report.signs import doubt_sign
from llmexp.report.stacks import has_several_stacks
from llmexp.report.training_budget import TrainingBudget

_IN_TITLE = {"task": "{}", "hardware": "on {}", "engine": "{}", "ranks": "{} ranks", "runtime": "{}"}


@dataclass(frozen=True)
class SectionRows:
    """The rows of one kind, in the order of their folders, and what they are called.

    `others` are the rows of the report's other sections. `left_out` counts rows that the user asked not to see.
    `training_budget` is a training whose cost was asked for, `target_loss` a loss whose cost was.
    """

    rows: tuple[Row, ...]
    others: tuple[Row, ...] = ()
    left_out: int = 0
    training_budget: TrainingBudget | None = None
    target_loss: float | None = None

    @cached_property
    def shared(self) -> dict[str, str]:
        """The part of the work that all rows share, by name; other parts need a column."""
        first = self.rows[0].comparison_key if self.rows else {}
        return {
            name: value
            for name, value in first.items()
            if all(row.comparison_key.get(name) == value for row in self.rows)
        }

    @cached_property
    def beside(self) -> Beside:
        """What published references show beside these runs."""
        assert isinstance(self, ReportSection)  # the other types are its parts
        return Together([reference.beside(self) for reference in references()] if self.rows else [])

    @cached_property
    def other_trainings(self) -> dict[Path, str]:
        """The folders of runs that did another training than those that were asked for the same, with the reason."""
        return other_trainings(self.rows)

    @property
    def facets(self) -> list[str]:
        """Names of the parts of the comparison key that rows do not share and that are no name fields."""
        first = self.rows[0] if self.rows else None
        return [
            name
            for name in (first.comparison_key if first else {})
            if name not in self.shared and name not in (*_name_fields(first), "task")
        ]

    @property
    def title(self) -> str:
        """The work that all rows share, in one line."""
        shown = self.shown(self.rows[0]) if self.rows else {}
        named = (name for name, value in self.shared.items() if value not in (HERE, ""))
        said = (self.words_of(name).format(shown[name]) for name in named)
        return ", ".join("1 rank" if each == "1 ranks" else each for each in said)

    def words_of(self, name: str) -> str:
        """Return the template of a part of the work in the title, with {} for its value."""
        return _IN_TITLE.get(name, f"{name} {{}}")

    def shown(self, row: Row) -> dict[str, str]:
        """Return a row's work in the words of cells and headings."""
        return row.comparison_key

    @cached_property
    def own_words(self) -> dict[str, str]:
        """The words that were typed for one run alone, by run id; empty where the other columns tell all runs apart."""
        told = {(*row.plan.name_fields.values(), *row.comparison_key.values()) for row in self.rows}
        words = own_words(self.rows) if len(told) < len(self.rows) else [""] * len(self.rows)
        return dict(zip((row.id for row in self.rows), words, strict=True))

    def named(self, row: Row) -> str:
        """Return a row's name in a sentence, and in brackets by name what else differs between rows."""
        told = {name: value for name, value in self.shown(row).items() if name not in self.shared}
        differing = [f"{name} {value}" for name, value in told.items() if value and value != row.name]
        own = [self.own_words[row.id]] if self.own_words[row.id] else []
        return f"{row.name} ({', '.join([*differing, *own])})" if differing or own else row.name

    def label(self, row: Row) -> str:
        """Return a row's name in the picture."""
        varying = [value for name, value in self.shown(row).items() if name not in self.shared]
        return " ".join([*varying, row.name])

    @property
    def metrics(self) -> dict[str, MetricSpec]:
        """The metrics of the rows' task."""
        return get_task(self.rows[0].plan.config.task.name).metrics if self.rows else {}

    @property
    def rate_unit(self) -> str:
        """The unit of the rate."""
        return self.rows[0].plan.rate_unit if self.rows else ""


@dataclass(frozen=True)
class SectionTable(SectionRows):
    """The table of the rows, with its legend and notes, and further tables."""

    @property
    def columns(self) -> list[Column]:
        """All columns that are not empty for these rows."""
        found = [
            *self.identity_columns(),
            self.rate_column(),
            *(self.metric_column(spec) for spec in self.metrics.values() if spec.column),
            *self.beside.columns("values"),
        ]
        return [column for column in found if not column.dispensable or any(column.cells)]

    @property
    def table(self) -> ReportTable:
        """The table of all runs; its numbered notes follow its legend."""
        notes = (f"({number}) {note}" for number, note in enumerate(self.notes, 1))
        return ReportTable(self.title, self.columns, [*self.legend, *notes])

    def identity_columns(self) -> Iterator[Column]:
        """Yield the columns that identify a run: its name fields, and what differs of the comparison key.

        Where these do not tell all runs apart, a column shows what was typed for each.
        """
        for name in _name_fields(self.rows[0] if self.rows else None):
            yield self.column(name, partial(self.name_cell, name=name), left=True)
        for name in self.facets:
            yield Column(name, tuple(self.shown(row)[name] for row in self.rows), left=True)
        yield self.column("asked for", lambda row: self.own_words[row.id], left=True, dispensable=10)
        several = has_several_stacks(self.rows)
        yield self.column("stack", lambda row: row.result.stack if row.result and several else "", dispensable=7)

    def name_cell(self, row: Row, name: str) -> str:
        """Return one of the name fields."""
        return row.plan.name_fields.get(name, "")

    def rate_column(self) -> Column:
        """Return the rate with its deviation, or how the run ended, with the numbers of its notes."""
        return self.column(self.rate_unit, lambda row: rate_cell(row, self.numbers))

    def metric_column(self, spec: MetricSpec, cell: Callable[[Any], Metric | None] | None = None) -> Column:
        """Return a metric's own column; `cell` picks the metric of a row, or None to hide it."""
        assert spec.column
        shown = spec.column
        found = [cell(row) if cell else row.metric(spec.name) for row in self.rows]
        cells = tuple(mean_of(metric, shown.form, shown.factor) for metric in found)
        return Column(shown.header, cells, dispensable=shown.dispensable)

    def column(self, header: str, cell: Callable[[Row], str], left: bool = False, dispensable: int = 0) -> Column:
        """Return a column of one cell a row."""
        return Column(header, tuple(cell(row) for row in self.rows), left, dispensable)

    @property
    def legend(self) -> list[str]:
        """The meaning of the signs and headings that occur in this table, and its conclusions."""
        rate, *others = self._headings
        return [
            *([rate] if rate else []),
            *legend_of_signs(self.rows),
            *others,
            *self.beside.legend("values"),
            *legend_of_runs(self.rows, self.shared),
            *control_lines(self.rows),
        ]

    @property
    def explained(self) -> list[str]:
        """The lines of the legend that a terminal shows on demand: what headings mean, and how runs were measured."""
        return [*self._headings, *self.beside.legend("values"), *how_measured(self.rows)]

    @property
    def _headings(self) -> list[str]:
        """The meaning of the rate, empty where no run has one, and that of every other heading."""
        rate = self.metrics.get(self.rows[0].plan.rate) if self.rows else None
        shown = [
            spec for spec in self.metrics.values() if spec.column and any(row.metric(spec.name) for row in self.rows)
        ]
        return [
            f"{rate.unit}: {small(rate.help)}" if rate and any(row.rate for row in self.rows) else "",
            *(f"{spec.column.header}: {small(spec.help)}" for spec in shown if spec.column),
        ]

    @cached_property
    def notes(self) -> list[str]:
        """Reasons why rows have no figures or doubtful ones; the table refers to them by number from 1."""
        return list(dict.fromkeys(self._folded.values()))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each row's note among those shown."""
        places = {shown: number for number, shown in enumerate(self.notes, 1)}
        return {note: places[shown] for note, shown in self._folded.items()}

    @cached_property
    def _folded(self) -> dict[str, str]:
        return folded(dict.fromkeys(note for row in self.rows for note in self.notes_of(row) if note))

    def notes_of(self, row: Row) -> Sequence[str]:
        """Return the notes of one row; some may be empty."""
        return *self.own_notes(row), *self.beside.notes_of(row)

    def own_notes(self, row: Row) -> Sequence[str]:
        """Return the notes of one row that no reference brings."""
        return ending_note(row), row.doubt, beside_note(row), interruption_note(row), power_note(row)

    @property
    def tables(self) -> Sequence[ReportTable]:
        """Further tables, which the runs' own have no room for."""
        return self.beside.tables

    @property
    def layouts(self) -> Sequence[ReportTable]:
        """Tables for the page alone, which a terminal's list of runs has no need of."""
        return self.beside.layouts

    @property
    def asked_tables(self) -> Sequence[ReportTable]:
        """The tables among `tables` that were asked for, which LaTeX shows too."""
        return ()


@dataclass(frozen=True)
class SectionCsv(SectionRows):
    """The line of a row for programs."""

    def record(self, row: Row) -> dict[str, Any]:
        """Return a row's line of the CSV, in SI units and bytes; the columns' names do not depend on the runs.

        A metric has three columns: mean, deviation between repeats and within the run. <rate>_low and <rate>_high are
        the ends of the 95 % confidence interval of the rate; clocks are those of the GPU with the lowest mean.
        """
        return (
            self.identity(row)
            | csv_line(row, self.metrics)
            | self.comparisons(row)
            | self.beside.values_of(row)
            | {"command": anywhere(row.command)}
        )

    def identity(self, row: Row) -> dict[str, Any]:
        """Return what the run is and how it ended."""
        return identity(row)

    def comparisons(self, row: Row) -> dict[str, Any]:
        """Return the columns that compare the row with others."""
        return {}


@dataclass(frozen=True)
class SectionPictures(SectionRows):
    """The pictures of the rows: bars, and what only some sections have."""

    @property
    def panels(self) -> list[Bars]:
        """The panels of the picture, each at most as wide as those before it."""
        rates = [row.rate for row in self.rows]
        words = ["out of memory" if row.state == OOM else row.state for row in self.rows]
        signs = [f" {doubt_sign(row)}" if row.doubt else "" for row in self.rows]
        ours = [rate.mean if rate else None for rate in rates]
        intervals = [mean_interval(rate) if rate else None for rate in rates]
        published = [self.beside.mark_of(row, row.plan.rate) for row in self.rows]
        return [Bars(self.rate_unit, ours, intervals, published, words, signs)]

    @property
    def subtitle(self) -> str:
        """The meaning of the marks in the picture."""
        whiskers = "; whiskers: 95 % intervals by the repeats" * any(any(bars.intervals) for bars in self.panels)
        return f"bars and numbers: measured means{whiskers}" + f"; diamonds: {self.marks}" * bool(self.marks)

    @property
    def marks(self) -> str:
        """Where the published values are from; empty where there are none."""
        return self.beside.marks(self.rows[0].plan.rate) if self.rows else ""

    @property
    def charts(self) -> Sequence[Chart]:
        """The charts of the page beside the pictures that draw_more draws."""
        return ()

    @property
    def matrices(self) -> Sequence[Matrix]:
        """The heat maps of the page."""
        return ()

    @property
    def drawn_as_charts(self) -> Sequence[str]:
        """The names of pictures that draw_more draws and whose content is in the charts of the page."""
        return ()

    def draw_more(self, path: Path) -> list[Path]:
        """Draw the pictures that only some sections have, named after `path`, and return their paths."""
        return self.beside.draw(path)


@dataclass(frozen=True)
class ReportSection(SectionTable, SectionCsv, SectionPictures):
    """A section as a report holds it: of runs of any task, by what their plans and metrics say.

    A task that needs more has a section of its own.
    """

    def largest_batches(self) -> ReportSection:
        """Keep the smallest and the largest measured batch of each configuration, or all rows if they have no batch."""
        return self

    @property
    def answers(self) -> list[str]:
        """What these runs answer, in sentences that are no surer than their statistics."""
        return answers(self.rows, self.named, self.other_trainings)

    @property
    def leaders(self) -> list[str]:
        """What stands above the table: the fastest run, beside what, and whether that is sure."""
        return leaders(self.rows, self.named, self.other_trainings)


def _name_fields(row: Row | None) -> list[str]:
    return list(row.plan.name_fields) if row else []
