"""A published table or figure with what runs have in its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmexp.report.columns import ReportTable

if TYPE_CHECKING:
    from llmexp.report.page.chart import Chart
    from llmexp.report.row import Row


@dataclass(frozen=True)
class View:
    """A table of one machine's runs, named as its experiment: `table03`, `fig04`.

    `answers` are its coverage and outcome in sentences, `cells` its lines of CSV, `missing` the commands that would
    fill the cells without a run, `rows` the runs that it shows.
    """

    name: str
    table: ReportTable
    answers: Sequence[str] = ()
    cells: Sequence[Mapping[str, Any]] = ()
    missing: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    rows: Sequence[Row] = ()

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """A line of CSV for each cell, or else for each line of the table as it is printed."""
        if self.cells:
            return self.cells
        own = {"table": self.name, "title": self.table.title}
        return [own | dict(zip(self.table.headers, cells, strict=True)) for cells in self.table.rows]
