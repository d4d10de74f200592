"""Whose turn it is in `llmexp ab`: both sides of a row one right after the other, row by row, round by round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Measures = Literal["a", "b", "control"]
A: Measures = "a"
B: Measures = "b"
CONTROL: Measures = "control"


@dataclass(frozen=True)
class SideTurn:
    """One measurement: of a side, or of the control, which is the first side once more; counted from 1."""

    round: int
    row: int
    measures: Measures

    @property
    def sweep(self) -> str:
        """The name of the turn's sweep, a folder."""
        return f"{self.measures}-{self.round}-{self.row}"


@dataclass(frozen=True)
class TurnBlock:
    """The turns of one row in one round, in their order."""

    round: int
    row: int
    turns: tuple[SideTurn, ...]


def blocks(rounds: int, rows: int, control: int) -> Iterator[TurnBlock]:
    """Yield the blocks in the order of measuring; the row `control`, counted from 1, has a third turn in each.

    Each side goes first in every other round of a row, and for every other row of a round, so that a drift favors
    neither. In the control's row b stands between both measurements of a, so that these are further apart than any
    block's.
    """
    for number in range(1, rounds + 1):
        for row in range(1, rows + 1):
            order = (A, B, CONTROL) if row == control else (A, B)
            order = order if (number + row) % 2 == 0 else order[::-1]
            yield TurnBlock(number, row, tuple(SideTurn(number, row, measures) for measures in order))
