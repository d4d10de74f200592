"""Table XII and figures 11 to 15 of the paper: the points of runs that answer them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from llmexp.micro.report.paper import PAPER_TIME
from llmexp.micro.report.tables import point_tables
from llmexp.report.paper.names import TITLES, name_of, words_of
from llmexp.report.paper.view import PaperView
from llmexp.report.row import Row

_FIGURE_NOTE = "the paper draws these points and prints none of them"


def paper_views(rows: Sequence[Row]) -> Iterator[PaperView]:
    """Yield a view for each table of points that holds products of table XII, or is of a figure's experiment."""
    for row in rows:
        own = name_of(row.plan.config.sweep.name)
        for detail in point_tables(row):
            is_table = any(column.header == PAPER_TIME for column in detail.columns)
            name = "table12" if is_table else own
            if name:
                note = [] if is_table else [_FIGURE_NOTE]
                title = f"{words_of(name)}, {TITLES[name]}: {row.subject} on {row.hardware}"
                titled = replace(detail, title=title, legend=[*detail.legend, *note])
                yield PaperView(name, titled, rows=(row,))
