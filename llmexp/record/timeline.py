"""When what ran in one profiled step: bars for rows of a picture, which llmexp/traces makes of a trace."""

from __future__ import annotations

from dataclasses import dataclass

PHASE, COMPUTATION, COMMUNICATION, COPIES, IDLE = "phase", "computation", "communication", "copies", "idle"
ROWS = (PHASE, COMPUTATION, COMMUNICATION, COPIES, IDLE)
"""The rows from top to bottom."""
Bars = list[tuple[float, float]]


@dataclass(frozen=True)
class Timeline:
    """One rank's step; `bars` holds for each row and label the begins and lengths in ms from the step's begin.

    `source` is the trace's file, and `step` says which of its steps this is; empty where it marks none.
    """

    source: str
    step: str
    length_ms: float
    bars: dict[tuple[str, str], Bars]

    @property
    def rows(self) -> list[str]:
        """The rows that have bars."""
        return [row for row in ROWS if any(of == row for of, _ in self.bars)]

    def labels(self, row: str) -> list[str]:
        """Return the labels of a row in the order in which they were found."""
        return [label for of, label in self.bars if of == row]
