"""The shapes of a claim: what is counted or divided, and the limits within which the claim holds or holds partly.

Every shape has one function, `answer`, which is the same for published figures and for runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import correlation, geometric_mean
from typing import Annotated, Literal

from pydantic import Field

from llmexp.report.findings.curve_shapes import Growth
from llmexp.report.findings.formula import calculate, figures_of, names_in
from llmexp.report.findings.limits import Limited, OverRows, as_range, counted, nothing, said
from llmexp.report.findings.row_shapes import Best, Fits, OutOfMemory, Value
from llmexp.report.findings.rows import ClaimRow, RowFigure
from llmexp.report.findings.selection import Name, Pair, SelectedPair, pairs
from llmexp.report.findings.verdict import Answer, Range, judged, judged_figure, judged_share, surely_within

# A correlation of ranks over fewer methods says nothing.
FEWEST_FOR_RANKS = 4


class _Compared(OverRows):
    metric: Name
    compare: SelectedPair

    def pairs(self, rows: Sequence[ClaimRow]) -> list[Pair]:
        return list(pairs(rows, self.compare, self.where, self.metric, self.batch))


class Ratio(_Compared):
    """The geometric mean over all pairs of their ratio lies within the limits."""

    shape: Literal["ratio"]

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on the mean of the pairs among rows."""
        found = self.pairs(rows)
        if not found:
            return nothing(f"no pair to compare by {self.metric}")
        ends = ([getattr(pair.ratio, end) for pair in found] for end in ("value", "low", "high"))
        mean = RowFigure(*map(geometric_mean, ends))
        numbers = f"{self.metric} ratio {said(mean)}" + (f" (n={len(found)})" if len(found) > 1 else "")
        return Answer(judged_figure(mean, self.holds, self.partly), numbers, _of(found))


class ShareShape(_Compared):
    """The share of pairs whose ratio lies within `counts` lies within the limits."""

    shape: Literal["share"]
    counts: Range

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on the share of the pairs among rows."""
        found = self.pairs(rows)
        if not found:
            return nothing(f"no pair to compare by {self.metric}")
        inside = [surely_within(pair.ratio, self.counts) for pair in found]
        ratios = [pair.ratio.value for pair in found]
        numbers = (
            f"{self.metric} ratio {as_range(self.counts)} in {counted(inside)} pairs ({min(ratios):.3g} to "
            f"{max(ratios):.3g})"
        )
        return Answer(judged_share(inside, self.holds, self.partly), numbers, _of(found))


class Ranks(_Compared):
    """Spearman's correlation of the figures of both sides of the pairs."""

    shape: Literal["ranks"]

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on the correlation; cannot tell of figures with intervals, whose order is not sure."""
        found = self.pairs(rows)
        if len(found) < FEWEST_FOR_RANKS:
            return nothing(f"{len(found)} pairs to rank, {FEWEST_FOR_RANKS} are needed")
        if any(pair.ratio.low < pair.ratio.high for pair in found):
            return nothing("the order of figures with intervals is not judged", _of(found))
        sides = ([getattr(pair, side).values[self.metric].value for pair in found] for side in ("over", "under"))
        value = correlation(*([sorted(side).index(each) for each in side] for side in map(list, sides)))
        verdict = judged(value, self.holds, self.partly)
        return Answer(verdict, f"rank correlation {value:.3f} (n={len(found)})", _of(found))


class FormulaShape(Limited):
    """Arithmetic over the figures of published tables."""

    shape: Literal["formula"]
    formula: str

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on the formula's value; cannot tell where rows lack one of its figures."""
        figures = figures_of(tuple(rows))
        if any(name not in figures for name in names_in(self.formula)):
            return nothing("decided by published tables only")
        named = {name: figures[name] for name in names_in(self.formula)}
        value = calculate(self.formula, {name: row.values[column].value for name, (row, column) in named.items()})
        used = tuple(dict.fromkeys(row for row, _ in named.values()))
        return Answer(judged(value, self.holds, self.partly), f"{value:.4g}", used)


Check = Annotated[
    Ratio | ShareShape | Best | OutOfMemory | Fits | Value | Growth | Ranks | FormulaShape, Field(discriminator="shape")
]
SHAPES = ("ratio", "share", "best", "oom", "fits", "value", "growth", "ranks", "formula")


def _of(found: Sequence[Pair]) -> tuple[ClaimRow, ...]:
    return tuple(dict.fromkeys(row for pair in found for row in (pair.over, pair.under)))
