"""The shape of claims about curves: how fast a figure grows with a size."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, prod
from typing import Literal

from llmexp.report.findings.limits import OverRows, as_range, counted, nothing
from llmexp.report.findings.rows import ClaimRow, RowFigure
from llmexp.report.findings.selection import Name, chosen
from llmexp.report.findings.verdict import Answer, Range, judged_share, surely_within

# The sizes that a call is described by, of which a curve multiplies these.
_SIZES: Mapping[str, tuple[str, ...]] = {"bytes": ("bytes",), "m": ("m",), "nk": ("n", "k")}
# Sizes that are nearer to each other make no curve.
_SHORTEST = 2.0
# Several curves are judged at once, and one wrong one may decide: as _AMONG_MANY of the shape `best`.
_AMONG_MANY = 1.25


@dataclass(frozen=True)
class _Curve:
    """The smallest and the largest size of a curve, with the row of each."""

    sizes: tuple[float, float]
    rows: tuple[ClaimRow, ClaimRow]

    def exponent(self, metric: str) -> RowFigure:
        """Return e where the figure grows as size ** e: 0 of one that stays, 1 of one in proportion."""
        first, last = (row.values[metric] for row in self.rows)
        ratio, span = last.over(first).widened(_AMONG_MANY), log(self.sizes[1] / self.sizes[0])
        return RowFigure(*(log(end) / span for end in (ratio.value, ratio.low, ratio.high)))


class Growth(OverRows):
    """The share of curves that grow as size ** e, with e within `counts`, from their first to their last size."""

    shape: Literal["growth"]
    metric: Name
    over: Literal["bytes", "m", "nk"]
    between: Range = (None, None)
    counts: Range

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on the curves among rows; a curve has sizes that differ at least by a factor of 2."""
        found = [curve for points in self._points(rows).values() if (curve := _curve(points))]
        if not found:
            return nothing(f"no curve of {self.metric} over {self.over}{self._where_in_words()}")
        exponents = [curve.exponent(self.metric) for curve in found]
        inside = [surely_within(exponent, self.counts) for exponent in exponents]
        values = [exponent.value for exponent in exponents]
        numbers = (
            f"{self.metric} over {self.over}{self._where_in_words()}: exponent {as_range(self.counts)} in "
            f"{counted(inside)} curves ({min(values):.2g} to {max(values):.2g})"
        )
        used = tuple(row for curve in found for row in curve.rows)
        return Answer(judged_share(inside, self.holds, self.partly), numbers, used)

    def _points(self, rows: Sequence[ClaimRow]) -> dict[tuple[object, ...], list[tuple[float, ClaimRow]]]:
        """Return the sizes and rows of each curve: all but the size is equal."""
        curves: dict[tuple[object, ...], list[tuple[float, ClaimRow]]] = defaultdict(list)
        low, high = self.between
        for row in chosen(rows, self.where, self.batch):
            sizes = json.loads(row.setting) if row.setting else {}
            varied = [sizes.pop(name, None) for name in _SIZES[self.over]]
            if self.metric not in row.values or not all(varied):
                continue
            size = float(prod(varied))
            if (low is None or size >= low) and (high is None or size <= high):
                rest = json.dumps(sizes, sort_keys=True)
                curves[row.task, row.engine, row.method, row.hardware, row.gpus, rest].append((size, row))
        return curves

    def _where_in_words(self) -> str:
        low, high = self.between
        begin, end = "" if low is None else f" from {low:,.10g}", "" if high is None else f" up to {high:,.10g}"
        return begin + end


def _curve(points: Sequence[tuple[float, ClaimRow]]) -> _Curve | None:
    (first, begin), (last, end) = (pick(points, key=lambda point: point[0]) for pick in (min, max))
    return _Curve((first, last), (begin, end)) if last >= _SHORTEST * first else None
