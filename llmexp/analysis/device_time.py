"""The share of held device time that went into measured steps.

The rest is spent on starting, warming up, tracing and cleaning up.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.reading import read_text
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.samples import RankSummary


def useful_fraction(runs: Iterable[RunFolder]) -> float | None:
    """Return device seconds of measured windows over device seconds held, 0 to 1; None where no run has ended.

    A run that failed held its devices for nothing. Raises RecordError.
    """
    held_s = useful_s = 0.0
    for run in runs:
        result = run.result()
        if result and result.started_at and result.ended_at:
            held_s += result.devices * _held_s(result)
            useful_s += result.devices * (_measured_s(run) if result.status is RunStatus.SUCCESS else 0.0)
    return useful_s / held_s if held_s else None


def _held_s(result: RunResult) -> float:
    """Return the seconds from the driver's first record of the run to its last."""
    return (datetime.fromisoformat(result.ended_at) - datetime.fromisoformat(result.started_at)).total_seconds()


def _measured_s(run: RunFolder) -> float:
    """Sum the measured windows of all repeats, each on its slowest rank.

    Raises RecordError where a rank's summary is not valid.
    """
    return sum(max((_window_s(path) for path in repeat.glob("rank.*.json")), default=0.0) for repeat in run.repeats())


def _window_s(path: Path) -> float:
    try:
        return RankSummary.model_validate_json(read_text(path)).window_wall_s
    except ValueError as error:
        raise RecordError(f"not a rank's summary: {error}") from None
