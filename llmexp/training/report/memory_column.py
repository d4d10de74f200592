"""The table's column of memory: which kind of memory it shows, in one unit for all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmexp.training.report.section import TrainingSection


MEMORY_WORDS = {
    "peak_allocated_bytes": "peak allocated on the device, largest rank",
    "training_state_bytes": "parameters, gradients and optimizer state on the largest rank's device",
}
MEMORY_HEADERS = {"peak_allocated_bytes": "peak", "training_state_bytes": "state"}


def memory_unit(report: TrainingSection) -> tuple[str, float]:
    """Return one unit for all rows with its bytes: GB, or MB where no row reaches one GB."""
    largest = max((row.memory[1] for row in report.rows if row.memory), default=1e9)
    return ("GB", 1e9) if largest >= 1e9 else ("MB", 1e6)


def memory_header(report: TrainingSection) -> str:
    """Return the column's heading: the kind of memory and the unit."""
    kinds = memory_kinds(report)
    return f"{MEMORY_HEADERS[kinds[0]] if len(kinds) == 1 else 'memory'} {memory_unit(report)[0]}"


def memory_kinds(report: TrainingSection) -> list[str]:
    """Return the metrics that give these runs' memory."""
    return sorted({row.memory[0] for row in report.rows if row.memory})
