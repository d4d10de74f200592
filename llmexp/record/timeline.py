"""When what ran in one profiled step: bars for rows of a picture, which llmexp/traces makes of a trace.

A run's own are in its timeline.json.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.reading import read_text
from llmexp.record.samples import Record
from llmexp.record.writing import write_atomically

PHASE, COMPUTATION, COMMUNICATION, COPIES, IDLE = "phase", "computation", "communication", "copies", "idle"
ROWS = (PHASE, COMPUTATION, COMMUNICATION, COPIES, IDLE)
"""The rows from top to bottom."""
TimelineBars = list[tuple[float, float]]


@dataclass(frozen=True)
class Timeline:
    """One rank's step; `bars` holds for each row and label the begins and lengths in ms from the step's begin.

    `source` is the trace's file, and `step` says which of its steps this is; empty where it marks none.
    """

    source: str
    step: str
    length_ms: float
    bars: dict[tuple[str, str], TimelineBars]

    @property
    def rows(self) -> list[str]:
        """The rows that have bars."""
        return [row for row in ROWS if any(of == row for of, _ in self.bars)]

    def labels(self, row: str) -> list[str]:
        """Return the labels of a row in the order in which they were found."""
        return [label for of, label in self.bars if of == row]


class _Row(Record):
    row: str
    label: str
    bars: TimelineBars


class _File(Record):
    source: str
    step: str
    length_ms: float
    rows: list[_Row]


def write_timeline(folder: RunFolder, found: Timeline) -> None:
    """Write a run's timeline.json."""
    rows = [_Row(row=row, label=label, bars=bars) for (row, label), bars in found.bars.items()]
    file = _File(source=found.source, step=found.step, length_ms=found.length_ms, rows=rows)
    write_atomically(folder.timeline_path, file.model_dump_json() + "\n")


def read_timeline(folder: RunFolder) -> Timeline | None:
    """Return a run's timeline, None where nothing was traced; raises RecordError where it is damaged."""
    if not folder.timeline_path.exists():
        return None
    try:
        found = _File.model_validate_json(read_text(folder.timeline_path))
    except (ValidationError, ValueError) as error:
        raise RecordError(f"{folder.timeline_path} is no timeline of this llmexp: {type(error).__name__}") from None
    return Timeline(found.source, found.step, found.length_ms, {(row.row, row.label): row.bars for row in found.rows})
