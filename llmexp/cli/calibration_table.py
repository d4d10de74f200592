"""What measured runs say of predictions: the multipliers of a machine, and the errors of its runs over time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import exp, log
from pathlib import Path
from statistics import median

from llmexp.analysis.prediction_drift import drift
from llmexp.errors import RecordError
from llmexp.record.calibration_file import CALIBRATION, CalibratingRun, MachineCalibration
from llmexp.record.digits import rounded
from llmexp.record.folder import RunFolder
from llmexp.report.row import Row, read_row

_HEADERS = ("run", "measured s", "predicted s", "off", "calibrated", "by the others")
GAP = "  "


def calibration_lines(found: Sequence[MachineCalibration], runs: Collection[str], outputs: Path) -> Iterator[str]:
    """Yield the multipliers of the machine that these runs calibrate, and the errors of each run before and after."""
    calibration = next((each for each in found if any(run.id in runs for run in each.runs)), None)
    if calibration is None:
        yield "not calibrated: none of these runs ended well and is predicted; llmexp plan --verbose says why"
        return
    named = ", ".join(f"{name} x {value:.2f}" for name, value in calibration.multipliers.items())
    machine = f"{calibration.hardware} ({calibration.device}), {calibration.engine}"
    yield f"{machine}, by {len(calibration.runs)} runs: {named}"
    yield from aligned([_HEADERS, *map(_errors, calibration.runs)])
    yield f"off: predicted over measured seconds of a step, less 1; the next plans go by {outputs / CALIBRATION}"


def _errors(run: CalibratingRun) -> tuple[str, ...]:
    errors = (run.uncalibrated_s, run.calibrated_s, run.held_out_s)
    return (
        run.run,
        rounded(run.step_s),
        rounded(run.uncalibrated_s),
        *(f"{each / run.step_s - 1:+.0%}" for each in errors),
    )


def error_lines(folders: Sequence[RunFolder]) -> Iterator[str]:
    """Yield the measured over the predicted speed of runs by date, how far off they are in all, and any drift."""
    rows = sorted(_predicted(folders), key=lambda row: row.result.ended_at if row.result else "")
    if not rows:
        yield "no run here was predicted before it was measured: llmexp calibrate measures some"
        return
    yield from aligned([("measured at", "run", "x predicted", ""), *map(_row, rows)])
    shares = [_share(row) for row in rows]
    off = median(abs(log(share)) for share in shares)
    yield f"median error: {exp(off) - 1:.1%} over {len(rows)} runs; * outside of its 90 % interval"
    for (hardware, engine), sessions in _by_machine(rows).items():
        yield f"{hardware}, {engine}: {drift(list(sessions.values())).words}"


def _predicted(folders: Sequence[RunFolder]) -> Iterator[Row]:
    for folder in folders:
        try:
            row = read_row(folder)
        except (RecordError, OSError, ValueError):
            continue
        if row.plan.predicted and row.rate and row.result:
            yield row


def _share(row: Row) -> float:
    assert row.rate
    assert row.plan.predicted
    return row.rate.mean / row.plan.predicted.rate


def _row(row: Row) -> tuple[str, ...]:
    share, predicted = _share(row), row.plan.predicted
    assert predicted
    assert row.result
    mark = "" if predicted.holds[0] <= share <= predicted.holds[1] else "*"
    return row.result.ended_at[:16].replace("T", " "), f"{row.result.sweep}/{row.plan.name}", f"{share:.2f}", mark


def _by_machine(rows: Sequence[Row]) -> dict[tuple[str, str], dict[tuple[str, str], list[float]]]:
    """Return the logarithms of measured over predicted speed by hardware and engine, and there by day and sweep."""
    found: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = {}
    for row in rows:
        assert row.result
        sessions = found.setdefault((row.hardware, row.plan.config.engine.name), {})
        sessions.setdefault((row.result.ended_at[:10], row.result.sweep), []).append(log(_share(row)))
    return found


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield lines whose columns are aligned: the first to the left, numbers to the right."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numbers = [
        all(cell[:1] in "+-0123456789" for cell in column[1:]) and place > 0 for place, column in enumerate(columns)
    ]
    for row in rows:
        cells = zip(row, widths, numbers, strict=True)
        yield GAP.join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()
