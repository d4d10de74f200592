"""The share of held device time that went into measured steps.

The rest is spent on starting, warming up, tracing and cleaning up.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.paths import names_in
from llmexp.record.reading import read_text
from llmexp.record.result import RunResult, RunStatus


class _Window(BaseModel):
    """What every rank's summary has; the rest, such as the environment, takes long to build for thousands of runs."""

    rank: int
    window_wall_s: float
    peak_rss_bytes: int


def useful_fraction(runs: Iterable[tuple[RunFolder, RunResult | None]]) -> float | None:
    """Return device seconds of measured windows over device seconds held, 0 to 1; None where no run has ended.

    `runs` are folders with their results. A run that failed held its devices for nothing. Raises RecordError.
    """
    held_s = useful_s = 0.0
    for run, result in runs:
        if result and (run_held_s := result.held_s) is not None:
            held_s += result.devices * run_held_s
            useful_s += result.devices * (_measured_s(run) if result.status is RunStatus.SUCCESS else 0.0)
    return useful_s / held_s if held_s else None


def _measured_s(run: RunFolder) -> float:
    """Sum the measured windows of all repeats, each on its slowest rank.

    Raises RecordError where a rank's summary is not valid.
    """
    return sum(max(map(_window_s, _summaries(repeat)), default=0.0) for repeat in run.repeats())


def _summaries(repeat: Path) -> list[str]:
    found = (name for name in names_in(str(repeat)) if name.startswith("rank.") and name.endswith(".json"))
    return [f"{repeat}/{name}" for name in found]


def _window_s(path: str) -> float:
    try:
        return _Window.model_validate_json(read_text(path)).window_wall_s
    except ValueError as error:
        raise RecordError(f"not a rank's summary: {error}") from None
