"""The shapes of claims that count rows or groups of rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from llmexp.report.findings.limits import OverRows, as_range, counted, nothing
from llmexp.report.findings.rows import ClaimRow, RowFigure
from llmexp.report.findings.selection import Name, Selection, chosen
from llmexp.report.findings.verdict import Answer, Range, judged_share, surely_within

_AT_LEAST_AS_HIGH: Range = (1, None)
# One is compared with up to forty others at once. Intervals of this width keep wrong answers of equals below 5 %.
_AMONG_MANY = 1.25


class Best(OverRows):
    """The share of groups, one for each word of `group`, whose row with the highest figure is one of `winner`."""

    shape: Literal["best"]
    metric: Name
    winner: Selection
    group: tuple[Literal["hardware", "model"], ...] = ("hardware", "model")

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on the groups in which a winner and another can be compared."""
        groups: dict[tuple[object, ...], list[ClaimRow]] = defaultdict(list)
        shared = ("setting", *(() if self.winner.engine else ("engine",)), *self.group)
        for row in chosen(rows, self.where, self.batch):
            if self.metric in row.values:
                cache = row.method if row.task == "serve" else ""  # of another dtype it is another question
                groups[(cache, *(getattr(row, field) for field in shared))].append(row)
        asked = [group for group in groups.values() if {self.winner.has(row) for row in group} == {True, False}]
        if not asked:
            return nothing("nowhere both what should be best and another")
        best = [max(group, key=lambda row: row.values[self.metric].value) for group in asked]
        inside = [self._is_won(group) for group in asked]
        named = ", ".join(f"{row.label} {row.values[self.metric].value:,.5g}" for row in best)
        used = tuple(row for group in asked for row in group)
        return Answer(judged_share(inside, self.holds, self.partly), f"best in {counted(inside)}: {named}", used)

    def _is_won(self, group: Sequence[ClaimRow]) -> bool | None:
        """Tell whether a winner certainly has the highest figure, or certainly not; None where intervals allow both."""
        own, others = (
            [row.values[self.metric] for row in group if self.winner.has(row) is side] for side in (True, False)
        )
        best = max(own, key=lambda figure: figure.value)
        if all(_leads(best, other) for other in others):
            return True
        return False if any(all(_leads(each, other) is False for each in own) for other in others) else None


class OutOfMemory(OverRows):
    """The share of rows that ran out of memory."""

    shape: Literal["oom"]

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on the rows that ran out of memory or were measured."""
        found = [row for row in chosen(rows, self.where, self.batch) if row.oom or row.values]
        if not found:
            return nothing("no such run")
        inside = [row.oom for row in found]
        verdict = judged_share(inside, self.holds, self.partly)
        return Answer(verdict, f"out of memory in {counted(inside)}", tuple(found))


class Fits(OverRows):
    """The share of pairs of hardware and model on which at least one row ran."""

    shape: Literal["fits"]

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on the pairs of hardware and model among rows."""
        found = [row for row in chosen(rows, self.where, self.batch) if row.oom or row.values]
        groups: dict[tuple[str, str], list[bool]] = defaultdict(list)
        for row in found:
            groups[row.hardware, row.model].append(not row.oom)
        if not groups:
            return nothing("no such run")
        inside = [any(ran) for ran in groups.values()]
        numbers = f"some method ran on {counted(inside)} pairs of hardware and model"
        return Answer(judged_share(inside, self.holds, self.partly), numbers, tuple(found))


class Value(OverRows):
    """The share of rows whose figure lies within `counts`."""

    shape: Literal["value"]
    metric: Name
    counts: Range

    def answer(self, rows: Sequence[ClaimRow]) -> Answer:
        """Return the verdict on the rows that have the figure."""
        found = [row for row in chosen(rows, self.where, self.batch) if self.metric in row.values]
        if not found:
            return nothing(f"no such run with {self.metric}")
        figures = [row.values[self.metric] for row in found]
        inside = [surely_within(figure, self.counts) for figure in figures]
        named = ", ".join(f"{figure.value:,.4g}" for figure in figures)
        numbers = f"{self.metric} {as_range(self.counts)} in {counted(inside)}: {named}"
        return Answer(judged_share(inside, self.holds, self.partly), numbers, tuple(found))


def _leads(one: RowFigure, other: RowFigure) -> bool | None:
    return surely_within(one.over(other).widened(_AMONG_MANY), _AT_LEAST_AS_HIGH)
