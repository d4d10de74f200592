"""A section of a report: the table of runs of one kind, with its legend, notes, CSV and pictures.

This section shows runs of any task by what their plans and metrics say; a task that needs more has a section of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from llmexp.analysis.device_time import useful_fraction
from llmexp.analysis.metric import MetricSpec
from llmexp.errors import RecordError
from llmexp.record.result import Metric
from llmexp.report.cells import mean_of, own_words, rate_cell
from llmexp.report.control import control_lines
from llmexp.report.csv_line import csv_line, identity
from llmexp.report.notes import beside_note, ending_note
from llmexp.report.row import HERE, OOM, Row
from llmexp.report.signs import UNKNOWN, UNSTABLE, doubt_sign, within_run
from llmexp.tasks import get_task

_IN_TITLE = {"task": "{}", "hardware": "on {}", "engine": "{}", "ranks": "{} ranks", "runtime": "{}"}


@dataclass(frozen=True)
class Column:
    """A column: its heading with the unit, its cells, and its place in the order of dropping.

    Where there is no room, columns go in the order of `dispensable`; 0 always stays.
    """

    header: str
    cells: tuple[str, ...]
    left: bool = False
    dispensable: int = 0


@dataclass(frozen=True)
class Detail:
    """A further table below that of the runs, with its title and legend."""

    title: str
    columns: Sequence[Column]
    legend: Sequence[str]


@dataclass(frozen=True)
class Bars:
    """A panel of a picture, with a value for each row, or None where there is nothing to draw.

    `words` are written in place of a missing value of ours, `signs` behind a value.
    """

    label: str
    ours: Sequence[float | None]
    deviations: Sequence[float]
    papers: Sequence[float | None]
    words: Sequence[str]
    signs: Sequence[str]

    @property
    def reach(self) -> list[float]:
        """The largest value that is drawn in each row."""
        rows = zip(self.ours, self.deviations, self.papers, strict=True)
        return [max((ours or 0) + deviation, paper or 0) for ours, deviation, paper in rows]


@dataclass(frozen=True)
class Section:
    """Rows in the order of their folders; `left_out` counts rows that the user asked not to see."""

    rows: tuple[Row, ...]
    left_out: int = 0

    @cached_property
    def shared(self) -> dict[str, str]:
        """The part of the work that all rows share, by name; other parts need a column."""
        first = self.rows[0].work if self.rows else {}
        return {name: value for name, value in first.items() if all(row.work.get(name) == value for row in self.rows)}

    @property
    def facets(self) -> list[str]:
        """Names of the parts of the work that rows do not share and the subject does not contain."""
        first = self.rows[0] if self.rows else None
        return [
            name
            for name in (first.work if first else {})
            if name not in self.shared and name not in (*_subject(first), "task")
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
        return row.work

    def largest_batches(self) -> Section:
        """Keep the smallest and the largest measured batch of each configuration, or all rows if they have no batch."""
        return self

    @property
    def columns(self) -> list[Column]:
        """All columns that are not empty for these rows."""
        found = [
            *self.identity_columns(),
            self.rate_column(),
            *(self.metric_column(spec) for spec in self.metrics.values() if spec.column),
        ]
        return [column for column in found if not column.dispensable or any(column.cells)]

    def identity_columns(self) -> Iterator[Column]:
        """Yield the columns that identify a run: the subject and the work that differs.

        Where these do not tell all runs apart, a column shows what was typed for each.
        """
        for name in _subject(self.rows[0] if self.rows else None):
            yield self.column(name, partial(self.subject_cell, name=name), left=True)
        for name in self.facets:
            yield Column(name, tuple(self.shown(row)[name] for row in self.rows), left=True)
        yield self.column("asked for", lambda row: self.own_words[row.id], left=True, dispensable=10)
        yield self.column(
            "stack", lambda row: row.result.stack if row.result and self.has_several_stacks else "", dispensable=7
        )

    def subject_cell(self, row: Row, name: str) -> str:
        """Return one word of the subject."""
        return row.plan.subject.get(name, "")

    def rate_column(self) -> Column:
        """Return the rate with its deviation, or how the run ended, with the numbers of its notes."""
        return self.column(self.rate_unit, lambda row: rate_cell(row, self.notes))

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
    def metrics(self) -> dict[str, MetricSpec]:
        """The metrics of the rows' task."""
        return get_task(self.rows[0].plan.config.task.name).metrics if self.rows else {}

    @property
    def rate_unit(self) -> str:
        """The unit of the rate."""
        return self.rows[0].plan.rate_unit if self.rows else ""

    @property
    def sample_name(self) -> str:
        """The name of a sample, such as step."""
        return self.rows[0].plan.sample_name if self.rows else ""

    @property
    def legend(self) -> list[str]:
        """The meaning of the signs and headings that occur in this table, and its conclusions."""
        rate = self.metrics.get(self.rows[0].plan.rate) if self.rows else None
        shown = [
            spec for spec in self.metrics.values() if spec.column and any(row.metric(spec.name) for row in self.rows)
        ]
        return [
            *([f"{rate.unit}: {_small(rate.help)}"] if rate and any(row.rate for row in self.rows) else []),
            *self.legend_of_signs(),
            *(f"{spec.column.header}: {_small(spec.help)}" for spec in shown if spec.column),
            *self.legend_of_runs(),
            *control_lines(self.rows),
        ]

    def legend_of_signs(self) -> list[str]:
        """Explain the signs beside rates."""
        rates, name = [row.rate for row in self.rows if row.rate], self.sample_name
        doubts = {doubt_sign(row) for row in self.rows}
        return applying(
            {
                "±: standard deviation between repeats": any(rate.std_between_repeats is not None for rate in rates),
                f"± … w: standard deviation of the {name}s within the run, there being one repeat": any(
                    within_run(rate) for rate in rates
                ),
                f"{UNSTABLE} unstable: not to be relied on, for the reasons in its note": UNSTABLE in doubts,
                f"{UNKNOWN} not known whether to be relied on: what is missing to judge it stands in its note": UNKNOWN
                in doubts,
            }
        )

    def legend_of_runs(self) -> list[str]:
        """Return the lines on all runs together, whatever they measured."""
        useful = self.useful_fraction or 0
        return applying(
            {
                "; ".join(f"runtime {runtime}: {versions}" for runtime, versions in self.versions.items()): "runtime"
                not in self.shared,
                f"of the time that these runs held their devices, {useful:.1%} went into measured "
                f"{self.sample_name}s": bool(useful),
                "-: out of memory": any(row.state == OOM for row in self.rows),
                "stack: where it is another one, so were code, libraries or device; rerun=stale measures "
                "such runs again": self.has_several_stacks,
            }
        )

    @cached_property
    def notes(self) -> list[str]:
        """Reasons why rows have no figures or doubtful ones; the table refers to them by number from 1."""
        return list(dict.fromkeys(note for row in self.rows for note in self.notes_of(row) if note))

    def notes_of(self, row: Row) -> Sequence[str]:
        """Return the notes of one row; some may be empty."""
        return ending_note(row), row.doubt, beside_note(row)

    def record(self, row: Row) -> dict[str, Any]:
        """Return a row's line of the CSV, in SI units and bytes; the columns' names do not depend on the runs.

        A metric has three columns: mean, deviation between repeats and within the run. <rate>_low and <rate>_high are
        the ends of the 95 % confidence interval of the rate; clocks are those of the GPU with the lowest mean.
        """
        return self.identity(row) | csv_line(row, self.metrics) | self.comparisons(row) | {"command": row.command}

    def identity(self, row: Row) -> dict[str, Any]:
        """Return what the run is and how it ended."""
        return identity(row)

    def comparisons(self, row: Row) -> dict[str, Any]:
        """Return the columns that compare the row with others."""
        return {}

    @property
    def panels(self) -> list[Bars]:
        """The panels of the picture, each at most as wide as those before it."""
        rates = [row.rate for row in self.rows]
        deviations = [(rate.std_between_repeats or rate.std_within_run or 0.0) if rate else 0.0 for rate in rates]
        words = ["out of memory" if row.state == OOM else row.state for row in self.rows]
        signs = [f" {doubt_sign(row)}" if row.doubt else "" for row in self.rows]
        ours = [rate.mean if rate else None for rate in rates]
        return [Bars(self.rate_unit, ours, deviations, [None] * len(ours), words, signs)]

    @property
    def subtitle(self) -> str:
        """The meaning of the marks in the picture."""
        return "bars and numbers: measured, with standard deviation"

    def label(self, row: Row) -> str:
        """Return a row's name in the picture."""
        varying = [value for name, value in self.shown(row).items() if name not in self.shared]
        return " ".join([*varying, row.subject])

    @property
    def details(self) -> Sequence[Detail]:
        """Further tables, which the runs' own have no room for."""
        return ()

    def draw_more(self, path: Path) -> list[Path]:
        """Draw the pictures that only some sections have, named after `path`, and return their paths."""
        return []

    @cached_property
    def own_words(self) -> dict[str, str]:
        """The words that were typed for one run alone, by run id; empty where the other columns tell all runs apart."""
        told = {(*row.plan.subject.values(), *row.work.values()) for row in self.rows}
        words = own_words(self.rows) if len(told) < len(self.rows) else [""] * len(self.rows)
        return dict(zip((row.id for row in self.rows), words, strict=True))

    @cached_property
    def versions(self) -> dict[str, str]:
        """The versions in each runtime of the distributions that differ between these runs."""
        known = {row.work["runtime"]: row.distributions for row in self.rows if row.distributions}
        names = sorted({name for versions in known.values() for name in versions})
        differing = [name for name in names if len({versions.get(name) for versions in known.values()}) > 1]
        return {
            runtime: ", ".join(f"{name} {versions[name]}" for name in differing if name in versions)
            for runtime, versions in known.items()
        }

    @cached_property
    def has_several_stacks(self) -> bool:
        """Tell whether code, libraries or devices changed between runs of one engine, hardware and runtime."""
        stacks: dict[tuple[str, ...], set[str]] = {}
        for row in self.rows:
            if row.result and row.result.stack:
                stacks.setdefault(tuple(row.work[name] for name in ("engine", "hardware", "runtime")), set()).add(
                    row.result.stack
                )
        return any(len(found) > 1 for found in stacks.values())

    @cached_property
    def useful_fraction(self) -> float | None:
        """The useful fraction of analysis.device_time; None also where a rank's summary is broken."""
        try:
            return useful_fraction(row.folder for row in self.rows)
        except RecordError:
            return None


def _subject(row: Row | None) -> list[str]:
    return list(row.plan.subject) if row else []


def applying(lines: dict[str, bool]) -> list[str]:
    """Return the lines that apply and are not empty."""
    return [line for line, applies in lines.items() if line and applies]


def _small(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")
