"""What a section is shown as: columns, further tables, and the bars of its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
class Detail:
    """A further table below that of the runs, with its title and legend."""

    title: str
    columns: Sequence[Column]
    legend: Sequence[str]


@dataclass(frozen=True)
class Bars:
    """A panel of a picture, with a value for each row, or None where there is nothing to draw.

    `words` are written in place of a missing value of ours, `signs` behind a value.
    """

    label: str
    ours: Sequence[float | None]
    deviations: Sequence[float]
    published: Sequence[float | None]
    words: Sequence[str]
    signs: Sequence[str]

    @property
    def reach(self) -> list[float]:
        """The largest value that is drawn in each row."""
        rows = zip(self.ours, self.deviations, self.published, strict=True)
        return [max((ours or 0) + deviation, published or 0) for ours, deviation, published in rows]
