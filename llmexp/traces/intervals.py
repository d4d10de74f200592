"""Arithmetic with intervals of time, in whole nanoseconds: unions, parts that others leave, and what is innermost."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from llmexp.traces.events import Table
from llmexp.traces.times import Numbers


@dataclass(frozen=True)
class Union:
    """Disjoint intervals in order."""

    begin: Numbers
    end: Numbers

    @classmethod
    def of(cls, begin: Numbers, end: Numbers) -> Union:
        """Merge intervals that overlap or touch."""
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], end[order]
        if not len(begin):
            return cls(begin, end)
        latest = np.maximum.accumulate(end)
        first = np.concatenate(([True], begin[1:] > latest[:-1]))
        return cls(begin[first], np.maximum.reduceat(end, np.flatnonzero(first)))

    @property
    def total_ns(self) -> int:
        """The length of all intervals."""
        return int((self.end - self.begin).sum())

    def before(self, moments: Numbers) -> Numbers:
        """Return the nanoseconds of the union that lie before each moment."""
        if not len(self.begin):
            return np.zeros_like(moments)
        passed = np.concatenate(([0], np.cumsum(self.end - self.begin)))
        index = np.searchsorted(self.begin, moments, side="right")
        inside = np.minimum(moments, self.end[index - 1]) - self.begin[index - 1]
        return np.where(index > 0, passed[index - 1] + inside, 0)

    def within(self, begin: Numbers, end: Numbers) -> Numbers:
        """Return the nanoseconds of the union in each interval."""
        return self.before(end) - self.before(begin)

    def gaps(self, begin_ns: int, end_ns: int) -> tuple[Numbers, Numbers]:
        """Return the begins and ends of what the union leaves of a window that holds all of it."""
        begins = np.concatenate(([begin_ns], self.end))
        ends = np.concatenate((self.begin, [end_ns]))
        return begins[ends > begins], ends[ends > begins]


def exclusive_ns(begin: Numbers, end: Numbers, priority: Numbers) -> Numbers:
    """Return for each interval the time that is its own, so that the sum is the length of the union.

    Where intervals overlap, the time belongs to the lowest priority, and within one priority to the earliest.
    """
    own = np.zeros(len(begin), np.int64)
    taken = Union(begin[:0], end[:0])
    for level in np.unique(priority):
        chosen = np.flatnonzero(priority == level)
        chosen = chosen[np.argsort(begin[chosen], kind="stable")]
        first, last = begin[chosen], end[chosen]
        earlier = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(last)[:-1]))
        first = np.minimum(np.maximum(first, earlier), last)
        own[chosen] = last - first - taken.within(first, last)
        taken = Union.of(np.concatenate((taken.begin, begin[chosen])), np.concatenate((taken.end, last)))
    return own


class Innermost:
    """The innermost of nested intervals, for each lane.

    `around` is the row of the interval around each, or -1. Where an interval ends after the one around it, which
    happens in foreign traces alone, it counts up to that end.
    """

    def __init__(self, table: Table) -> None:
        self.around: Numbers = np.full(len(table), -1, np.int64)
        self._changes: dict[int, tuple[Numbers, Numbers]] = {}
        order = outer_first(table)
        for lane in np.unique(table.lane).tolist():
            self._changes[lane] = self._flattened(table, order[table.lane[order] == lane])

    def at(self, lane: Numbers, moment: Numbers) -> Numbers:
        """Return the row of the innermost interval in which each moment of a lane lies, or -1."""
        found = np.full(len(moment), -1, np.int64)
        for number, (moments, rows) in self._changes.items():
            here = np.flatnonzero(lane == number)
            index = np.searchsorted(moments, moment[here], side="right") - 1
            found[here] = np.where(index >= 0, rows[index], -1)
        return found

    def pieces(self) -> tuple[Numbers, Numbers, Numbers]:
        """Return begin, end and row of the pieces of time in which an interval is the innermost of its lane."""
        pieces = [
            (moments[:-1][rows[:-1] >= 0], moments[1:][rows[:-1] >= 0], rows[:-1][rows[:-1] >= 0])
            for moments, rows in self._changes.values()
        ]
        pieces.append((np.empty(0, np.int64),) * 3)
        begin, end, row = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return begin, end, row

    def _flattened(self, table: Table, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Return the moments at which the innermost interval changes, and its row from then on, or -1."""
        moments, innermost, around = array("q"), array("q"), array("q")
        opened: list[tuple[int, int]] = [(np.iinfo(np.int64).max, -1)]
        # A view makes one number after the other, where a list would hold them all.
        columns = (rows, table.begin[rows], table.end[rows])
        for row, begin, end in zip(*(column.astype(np.int64).data for column in columns), strict=True):
            while opened[-1][0] <= begin:
                moments.append(opened.pop()[0])
                innermost.append(opened[-1][1])
            around.append(opened[-1][1])
            moments.append(begin)
            innermost.append(row)
            opened.append((min(end, opened[-1][0]), row))
        while len(opened) > 1:
            moments.append(opened.pop()[0])
            innermost.append(opened[-1][1])
        self.around[rows] = around
        return _last_of_each(np.array(moments, np.int64), np.array(innermost, np.int64))


def rows_of(numbers: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield each number with the rows that have it."""
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    for rows in np.split(order, ends) if len(order) else ():
        yield int(numbers[rows[0]]), rows


def outer_first(table: Table) -> Numbers:
    """Return the rows by begin, of intervals that begin together the longest first."""
    return np.lexsort((-table.end, table.begin))


def _last_of_each(moments: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Keep, of changes at one moment, the last."""
    last = np.concatenate((moments[1:] != moments[:-1], [True]))
    return moments[last], rows[last]
