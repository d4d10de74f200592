"""What every renderer of a report shows: tables of columns, and the bars of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.record.digits import three_digits

# The ends of the 95 % interval of a mean by its repeats.
Whisker = tuple[float, float]


@dataclass(frozen=True)
class Column:
    """A column: its heading with the unit, its cells, and its place in the order of dropping.

    Where there is no room, columns go in the order of `dispensable`; 0 always stays. A terminal breaks cells at blanks
    where they are wider than `widest` characters.
    """

    header: str
    cells: tuple[str, ...]
    left: bool = False
    dispensable: int = 0
    widest: int | None = None


@dataclass(frozen=True)
class ReportTable:
    """A table as each renderer shows it: its columns, which have equally many cells, and below it its legend.

    Where a reader can copy cells by a button, those of the column with the heading `copied` have one. Of the legend, a
    terminal shows the lines `explained`, which say what headings mean, only on demand.
    """

    title: str
    columns: Sequence[Column]
    legend: Sequence[str] = ()
    copied: str = ""
    explained: Sequence[str] = ()

    @classmethod
    def of_rows(
        cls,
        title: str,
        headers: Sequence[str],
        rows: Sequence[Sequence[str]],
        right: Sequence[str] = (),
        copied: str = "",
    ) -> ReportTable:
        """Return a table without a legend; the columns with the headings `right` are numbers."""
        cells = zip(*rows, strict=True) if rows else [()] * len(headers)
        columns = [Column(name, each, left=name not in right) for name, each in zip(headers, cells, strict=True)]
        return cls(title, columns, copied=copied)

    @property
    def headers(self) -> list[str]:
        """The headings."""
        return [column.header for column in self.columns]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells of each row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


@dataclass(frozen=True)
class Bars:
    """A panel of a picture, with a value for each row, or None where there is nothing to draw.

    `intervals` are those of our values, None where one repeat has none. `words` are written in place of a missing
    value of ours, `signs` behind a value.
    """

    label: str
    ours: Sequence[float | None]
    intervals: Sequence[Whisker | None]
    published: Sequence[float | None]
    words: Sequence[str]
    signs: Sequence[str]

    @property
    def reach(self) -> list[float]:
        """The largest value that is drawn in each row."""
        rows = zip(self.ours, self.intervals, self.published, strict=True)
        return [max(ours or 0, interval[1] if interval else 0, published or 0) for ours, interval, published in rows]

    @property
    def told(self) -> list[str]:
        """What is written beside each bar: its value with its sign, or why there is none."""
        rows = zip(self.ours, self.words, self.signs, strict=True)
        return [words if value is None else f"{three_digits(value, ',.1f')}{sign}" for value, words, sign in rows]
