"""The file calibration.json of an outputs folder: multipliers by machine and engine, and the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from llmexp.record.reading import read_text
from llmexp.record.result import to_json
from llmexp.record.samples import Record
from llmexp.record.writing import write_atomically

CALIBRATION = "calibration.json"
_VERSION = 1


class CalibratingRun(Record):
    """A measured run: the seconds of its step as measured, as predicted, and as predicted by the other runs."""

    id: str
    run: str = Field(description="its folder below the outputs folder")
    ended_at: str = Field(description="ISO 8601, UTC")
    step_s: float
    uncalibrated_s: float
    calibrated_s: float = Field(description="by all runs, this one too")
    held_out_s: float = Field(description="by the other runs")
    others: dict[str, float] = Field(description="the multipliers by the other runs, which predict this one")


class MachineCalibration(Record):
    """The multipliers of one machine with one engine and stack, and the runs that they rest on, newest first."""

    hardware: str
    device: str = Field(description="the model of its GPU or processor")
    engine: str
    stack: str
    basis: str = Field(description="what the uncalibrated predictions go by, and a digest of what predicts")
    multipliers: dict[str, float]
    runs: list[CalibratingRun]

    def for_run(self, identity: str) -> tuple[Mapping[str, float], int]:
        """Return the multipliers for a run, and the number of runs behind them: its own measurement never counts."""
        own = next((run for run in self.runs if run.id == identity), None)
        if own is None:
            return self.multipliers, len(self.runs)
        return (own.others, len(self.runs) - 1) if len(self.runs) > 1 else ({}, 0)


class CalibrationFile(Record):
    """All calibrations of an outputs folder."""

    version: int = _VERSION
    calibrations: list[MachineCalibration] = Field(default_factory=list)


def read_calibrations(outputs: Path) -> list[MachineCalibration]:
    """Return the calibrations of an outputs folder; none where the file is missing, damaged or another version's."""
    path = outputs / CALIBRATION
    try:
        found = path.stat()
    except OSError:
        return []
    return _read(path, found.st_mtime_ns, found.st_size, found.st_ino)


def write_calibrations(outputs: Path, calibrations: list[MachineCalibration]) -> None:
    """Write the file anew where its content changes."""
    text = to_json(CalibrationFile(calibrations=calibrations))
    path = outputs / CALIBRATION
    with suppress(OSError, ValueError):
        if read_text(path) == text:
            return
    write_atomically(path, text)


@lru_cache(maxsize=8)
def _read(path: Path, *stamp: int) -> list[MachineCalibration]:
    try:
        found = CalibrationFile.model_validate_json(read_text(path))
    except (OSError, ValueError):
        return []
    return found.calibrations if found.version == _VERSION else []
