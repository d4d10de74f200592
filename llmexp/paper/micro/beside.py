"""What the paper shows in the section of microbenchmarks."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from llmexp.micro.report.section import MicroSection
from llmexp.micro.report.tables import point_tables
from llmexp.paper.micro.gemm import PAPER_TIME, paper_columns, paper_legend
from llmexp.paper.views.names import TITLES, name_of, words_of
from llmexp.record.result import ResultPoint
from llmexp.report.columns import Column
from llmexp.report.references.beside import Beside
from llmexp.report.references.view import View
from llmexp.report.row import Row

_FIGURE_NOTE = "the paper draws these points and prints none of them"


@dataclass(frozen=True)
class MicroBeside(Beside):
    """Table XII beside products of the same sizes."""

    section: MicroSection

    def columns_of_points(self, points: Sequence[ResultPoint], row: Row) -> Sequence[Column]:
        """Return the paper's times of the same products."""
        return list(paper_columns(points, row))

    def legend_of_points(self, points: Sequence[ResultPoint], row: Row) -> Sequence[str]:
        """Say where these times are from, and what is odd about them."""
        return list(paper_legend(points))

    def views(self, asked: Container[str] = ()) -> Sequence[View]:
        """Return table XII, and figures 11 to 15 of the sweeps of their experiments."""
        return [view for row in self.section.rows for view in self._views_of(row)]

    def _views_of(self, row: Row) -> Iterator[View]:
        """Yield a view for each table of points that holds products of table XII, or is of a figure's experiment."""
        own = name_of(row.plan.config.sweep.name)
        for detail in point_tables(row, self):
            is_table = any(column.header == PAPER_TIME for column in detail.columns)
            name = "table12" if is_table else own
            if name:
                note = [] if is_table else [_FIGURE_NOTE]
                title = f"{words_of(name)}, {TITLES[name]}: {row.subject} on {row.hardware}"
                yield View(name, replace(detail, title=title, legend=[*detail.legend, *note]), rows=(row,))
