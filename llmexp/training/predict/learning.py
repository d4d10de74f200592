"""What measured runs teach: they are read from an outputs folder, and its calibration.json is written anew."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.calibration_file import (
    CalibratingRun,
    MachineCalibration,
    read_calibrations,
    write_calibrations,
)
from llmexp.record.environment import recorded_device_model
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult, RunStatus
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.applied import basis_of, stack_now
from llmexp.training.predict.calibration import Evidence, Multipliers, multipliers_of
from llmexp.training.predict.prediction import unpredicted
from llmexp.training.predict.predictor import predictor_of

# The newest runs of a machine that count, and the newest results that are looked at, so that thousands cost no more.
_COUNTED, _LOOKED_AT = 12, 100


@dataclass(frozen=True)
class _Measured:
    """A run that ended well, and what it tells."""

    folder: RunFolder
    plan: TrainingPlan
    result: RunResult
    evidence: Evidence
    source: str

    @property
    def device(self) -> str:
        """The model of its GPU or processor."""
        return recorded_device_model(self.result.environment, self.plan.config.hardware.device) or "unknown"

    @property
    def machine(self) -> tuple[str, str, str]:
        """What runs share that calibrate each other."""
        return self.result.hardware, self.device, self.result.engine

    @property
    def is_stale(self) -> bool:
        """Tell whether other code or libraries would run it now, or another processor."""
        return self.result.stack != stack_now(self.plan, self.device)

    @property
    def is_unstable(self) -> bool:
        """Tell whether something speaks against relying on the measurement."""
        return self.result.stability is not None and self.result.stability.verdict == "unstable"


def learn(outputs: Path, folders: Iterable[RunFolder]) -> list[MachineCalibration]:
    """Calibrate the machines of these runs anew, also by the runs that calibrated them before, and return all.

    Runs that failed, that were emulated, or that another stack measured do not count.
    """
    before = read_calibrations(outputs)
    new = [found for folder in _newest(folders) if (found := _measured(folder))]
    machines = dict.fromkeys(found.machine for found in new)
    if not machines:
        return before
    known = [
        RunFolder(outputs / run.run)
        for each in before
        if (each.hardware, each.device, each.engine) in machines
        for run in each.runs
    ]
    runs = {run.plan.id: run for run in [*map(_measured, known), *new] if run}
    kept = [each for each in before if (each.hardware, each.device, each.engine) not in machines]
    by_machine = [_of_machine(runs.values(), machine) for machine in machines]
    made = [_calibration(outputs, of_one) for of_one in by_machine if of_one]
    write_calibrations(outputs, [*kept, *made])
    return [*kept, *made]


def _newest(folders: Iterable[RunFolder]) -> list[RunFolder]:
    """Return the folders whose results are the newest, newest first."""

    def written_at(folder: RunFolder) -> float:
        try:
            return folder.result_path.stat().st_mtime
        except OSError:
            return 0.0

    return sorted(folders, key=written_at, reverse=True)[:_LOOKED_AT]


def _measured(folder: RunFolder) -> _Measured | None:
    """Return a run that tells something; None for any other."""
    try:
        result = folder.result()
        if result is None or result.status is not RunStatus.SUCCESS or result.evidence != "measured":
            return None
        plan = RunPlan.read(folder.plan_path)
    except RecordError:
        return None
    if not isinstance(plan, TrainingPlan) or not plan.config.runtime.plain or unpredicted(plan):
        return None
    if plan.config.precision.linears:  # the errors of a formula that no run was fitted to say nothing of others
        return None
    rate, predictor = result.metrics.get(plan.rate), predictor_of(plan)
    if rate is None or not rate.mean > 0:
        return None
    evidence = Evidence(plan.amount / rate.mean, lambda multipliers: float(predictor.step(multipliers).whole))
    return _Measured(folder, plan, result, evidence, predictor.source)


def _of_machine(runs: Iterable[_Measured], machine: tuple[str, str, str]) -> list[_Measured]:
    """Return the newest runs of a machine that go by the same rates as the newest of them, newest first.

    Unstable ones, such as those beside other programs, count only where there are no others.
    """
    fresh = [run for run in runs if run.machine == machine and not run.is_stale]
    found = [run for run in fresh if not run.is_unstable] or fresh
    found.sort(key=lambda run: run.result.ended_at, reverse=True)
    return [run for run in found if run.source == found[0].source][:_COUNTED]


def _calibration(outputs: Path, runs: Sequence[_Measured]) -> MachineCalibration:
    multipliers = multipliers_of([run.evidence for run in runs])
    hardware, device, engine = runs[0].machine
    return MachineCalibration(
        hardware=hardware,
        device=device,
        engine=engine,
        stack=runs[0].result.stack,
        basis=basis_of(runs[0].source),
        multipliers=_rounded(multipliers),
        runs=list(_held_out(outputs, runs, multipliers)),
    )


def _held_out(outputs: Path, runs: Sequence[_Measured], start: Multipliers) -> Iterator[CalibratingRun]:
    """Yield each run, predicted by the others too."""
    for run in runs:
        others = multipliers_of([other.evidence for other in runs if other is not run], start)
        yield CalibratingRun(
            id=run.plan.id,
            run=os.path.relpath(run.folder.path, outputs),
            ended_at=run.result.ended_at,
            step_s=run.evidence.step_s,
            uncalibrated_s=run.evidence.predicted_s({}),
            calibrated_s=run.evidence.predicted_s(start),
            held_out_s=run.evidence.predicted_s(others),
            others=_rounded(others),
        )


def _rounded(multipliers: Multipliers) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in multipliers.items()}
