"""What the paper shows in the section of microbenchmarks."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from llmexp.micro.report.section import MicroSection
from llmexp.micro.report.tables import point_tables
from llmexp.micro.report.units import in_seconds
from llmexp.paper.printed import SOURCE, PaperGemm, paper_gemm
from llmexp.paper.views.names import TITLES, name_of, words_of
from llmexp.record.digits import three_digits
from llmexp.record.result import ResultPoint
from llmexp.report.columns import Column
from llmexp.report.references.beside import Beside
from llmexp.report.references.view import View
from llmexp.report.row import Row

_FIGURE_NOTE = "the paper draws these points and prints none of them"
# Table XII is of this machine.
_HARDWARE = "a800"
_PAPER_TIME = "paper, A800"


@dataclass(frozen=True)
class MicroBeside(Beside):
    """Table XII beside products of the same sizes."""

    section: MicroSection

    def columns_of_points(self, points: Sequence[ResultPoint], row: Row) -> Sequence[Column]:
        """Return the paper's times of the same products."""
        return list(_paper_columns(points, row))

    def legend_of_points(self, points: Sequence[ResultPoint], row: Row) -> Sequence[str]:
        """Say where these times are from, and what is odd about them."""
        return list(_paper_legend(points))

    def views(self, asked: Container[str] = ()) -> Sequence[View]:
        """Return table XII, and figures 11 to 15 of the sweeps of their experiments."""
        return [view for row in self.section.rows for view in self._views_of(row)]

    def _views_of(self, row: Row) -> Iterator[View]:
        """Yield a view for each table of points that holds products of table XII, or is of a figure's experiment."""
        own = name_of(row.plan.config.sweep.name)
        for table in point_tables(row, self):
            is_table = any(column.header == _PAPER_TIME for column in table.columns)
            name = "table12" if is_table else own
            if name:
                note = [] if is_table else [_FIGURE_NOTE]
                title = f"{words_of(name)}, {TITLES[name]}: {row.name} on {row.hardware}"
                yield View(name, replace(table, title=title, legend=[*table.legend, *note]), rows=(row,))


def _paper_columns(points: Sequence[ResultPoint], row: Row) -> Iterator[Column]:
    """Yield the paper's time and percentage of the peak, and on the same hardware how many times ours is."""
    printed = [_printed(point) for point in points]
    if not any(printed):
        return
    yield Column(_PAPER_TIME, tuple(in_seconds(each.time_s) if each else "" for each in printed))
    yield Column("% of peak there", tuple(f"{each.peak_percent:.1f}" if each else "" for each in printed))
    if row.hardware == _HARDWARE:
        yield Column("time over paper", tuple(_over(point, each) for point, each in zip(points, printed, strict=True)))


def _paper_legend(points: Sequence[ResultPoint]) -> Iterator[str]:
    """Say where the paper's figures are from, and what is odd about them."""
    found = [printed for point in points if (printed := _printed(point))]
    if found:
        yield f"paper: {SOURCE}, table XII"
    yield from dict.fromkeys(f"paper's {in_seconds(each.time_s)}: {each.note}" for each in found if each.note)


def _printed(point: ResultPoint) -> PaperGemm | None:
    params = point.params
    if params["family"] != "gemm" or params["dtype"] != "bf16":
        return None
    return paper_gemm(params["m"], params["n"], params["k"])


def _over(point: ResultPoint, printed: PaperGemm | None) -> str:
    ours = point.metrics.get("time_s")
    return three_digits(ours.mean / printed.time_s, ".2f") if ours and printed else ""
