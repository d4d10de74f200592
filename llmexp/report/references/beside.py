"""What a published reference shows beside the runs of one section of a report."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from llmexp.record.result import ResultPoint
from llmexp.report.columns import Column, ReportTable
from llmexp.report.references.view import View
from llmexp.report.row import Row

ColumnPlace = Literal["signs", "values", "scaling", "end"]
"""Where a section asks: among the signs, the published values, the scaling over ranks, or at its end."""
WEAK_SCALING_PERCENT = "weak_scaling_percent"
"""The name by which a section asks for published scaling efficiencies, which are percentages."""


class Beside:
    """A section asks this where its own order of columns and lines has room; nothing is shown unless overridden."""

    def columns(self, place: ColumnPlace) -> Sequence[Column]:
        """Return columns with a cell for each row of the section."""
        return ()

    def columns_of_points(self, points: Sequence[ResultPoint], row: Row) -> Sequence[Column]:
        """Return columns with a cell for each of these points of a run."""
        return ()

    def legend(self, place: ColumnPlace) -> Sequence[str]:
        """Return lines below the table of runs."""
        return ()

    def legend_of_points(self, points: Sequence[ResultPoint], row: Row) -> Sequence[str]:
        """Return lines below a table of these points."""
        return ()

    def notes_of(self, row: Row) -> Sequence[str]:
        """Return the notes of one row, to which its cells may refer by the section's `numbers`; some may be empty."""
        return ()

    def values_of(self, row: Row) -> dict[str, Any]:
        """Return a row's columns of the CSV, in SI units and bytes; their names do not depend on the runs."""
        return {}

    def mark_of(self, row: Row, metric: str) -> float | None:
        """Return the published value of a metric for the same run, which pictures show as a diamond."""
        return None

    def marks(self, metric: str) -> str:
        """Return in words where the diamonds of a metric are from; empty where there are none."""
        return ""

    @property
    def tables(self) -> Sequence[ReportTable]:
        """Tables at the end of the section."""
        return ()

    @property
    def layouts(self) -> Sequence[ReportTable]:
        """Tables for the page alone."""
        return ()

    def views(self, asked: Container[str] = ()) -> Sequence[View]:
        """Return the published tables and figures that these runs answer.

        Runs of other work stand in those that were `asked` for, and in the sweeps of their experiments.
        """
        return ()

    def draw(self, path: Path) -> list[Path]:
        """Write pictures, named after `path`, and return their paths."""
        return []


@dataclass(frozen=True)
class Together(Beside):
    """What several references show, in their order; a mark is that of the first which has one."""

    each: Sequence[Beside]

    def columns(self, place: ColumnPlace) -> Sequence[Column]:
        """Return the columns of all."""
        return [column for one in self.each for column in one.columns(place)]

    def columns_of_points(self, points: Sequence[ResultPoint], row: Row) -> Sequence[Column]:
        """Return the columns of all."""
        return [column for one in self.each for column in one.columns_of_points(points, row)]

    def legend(self, place: ColumnPlace) -> Sequence[str]:
        """Return the lines of all."""
        return [line for one in self.each for line in one.legend(place)]

    def legend_of_points(self, points: Sequence[ResultPoint], row: Row) -> Sequence[str]:
        """Return the lines of all."""
        return [line for one in self.each for line in one.legend_of_points(points, row)]

    def notes_of(self, row: Row) -> Sequence[str]:
        """Return the notes of all."""
        return [note for one in self.each for note in one.notes_of(row)]

    def values_of(self, row: Row) -> dict[str, Any]:
        """Return the values of all."""
        return {name: value for one in self.each for name, value in one.values_of(row).items()}

    def mark_of(self, row: Row, metric: str) -> float | None:
        """Return the first mark that one of them has."""
        found = (one.mark_of(row, metric) for one in self.each)
        return next((value for value in found if value is not None), None)

    def marks(self, metric: str) -> str:
        """Return the words of all."""
        return ", ".join(filter(None, (one.marks(metric) for one in self.each)))

    @property
    def tables(self) -> Sequence[ReportTable]:
        """The tables of all."""
        return [table for one in self.each for table in one.tables]

    @property
    def layouts(self) -> Sequence[ReportTable]:
        """The tables of all."""
        return [table for one in self.each for table in one.layouts]

    def draw(self, path: Path) -> list[Path]:
        """Write the pictures of all."""
        return [written for one in self.each for written in one.draw(path)]
