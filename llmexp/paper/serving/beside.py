"""What the paper shows in the section of served loads."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from llmexp.paper.printed.serving import Statement, statements_on
from llmexp.paper.serving.latency_views import latency_views
from llmexp.paper.serving.profile import paper_profile_tables
from llmexp.paper.views.names import ROMAN, TITLES, words_of
from llmexp.report.columns import ReportTable
from llmexp.report.references.beside import Beside, ColumnPlace
from llmexp.report.references.view import View
from llmexp.report.row import Row
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.report.loads import loads_table
from llmexp.serving.report.section import ServingSection

# The name of the load that is the paper's, in conf/serve.
_LOAD = "paper"
_NO_VALUES = "the paper prints no values of its figures 6 to 10; beside 7B, 13B and 70B stands what its text says"


@dataclass(frozen=True)
class ServingBeside(Beside):
    """Tables X and XI beside profiled servers, and statements on runs under the paper's load."""

    section: ServingSection

    def legend(self, place: ColumnPlace) -> Sequence[str]:
        """Return what the paper says of runs under its own load."""
        return [str(statement) for statement in self._statements] if place == "end" else []

    @property
    def tables(self) -> Sequence[ReportTable]:
        """Tables X and XI."""
        return [table for _, table in self._profiles]

    def views(self, asked: Container[str] = ()) -> Sequence[View]:
        """Return tables X and XI, and of runs under the paper's load figures 6 to 10."""
        views = [View(name, table, rows=self.section.rows) for name, table in self._profiles]
        if loads := loads_table(self._rows, self.section.label):
            title = f"{words_of('fig06')}, {TITLES['fig06']}, and what it says of figures 7 to 9"
            legend = [*loads.legend, _NO_VALUES, *map(str, self._statements)]
            views.append(View("fig06", ReportTable(title, loads.columns, legend), rows=self._rows))
        return [*views, *latency_views(self._rows, asked)]

    @property
    def _profiles(self) -> Iterator[tuple[str, ReportTable]]:
        return ((ROMAN[number], table) for number, table in paper_profile_tables(self.section.profiled))

    @property
    def _rows(self) -> list[Row]:
        """The runs under the paper's load."""
        rows = self.section.rows
        return [row for row in rows if isinstance(row.plan, ServingPlan) and row.plan.config.serve.name == _LOAD]

    @property
    def _statements(self) -> list[Statement]:
        return statements_on(
            frozenset(row.hardware for row in self._rows), frozenset(row.comparison_key["model"] for row in self._rows)
        )
