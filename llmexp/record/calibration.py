"""The limits of a machine, as a run of task=micro measured them, for the runs that are put beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from llmexp.errors import ConfigError
from llmexp.record.reading import read_text
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.samples import Record

AUTO, NONE = "auto", "none"
TASK = "micro"
_RESULT = "result.json"
# On a CPU a rank's share of the machine depends on how many ranks and threads there are.
_OF_CPU_RANKS = ("torch_threads", "cpu_capability")


class Calibration(Record):
    """What one rank can do at most while all are at work: rates in FLOP/s and bytes/s by the names of metrics."""

    run: str = Field(description="the folder of the run that measured it")
    measured_at: str = Field(description="ISO 8601, UTC")
    limits: dict[str, float]
    doubt: str = Field("", description="what disturbed the measurement")

    @property
    def day(self) -> str:
        """The date of the measurement."""
        return self.measured_at.partition("T")[0]


def calibration_for(choice: str, outputs: Path, processes: int, environment: Mapping[str, Any]) -> Calibration | None:
    """Return the limits that hardware.calibration chooses for a run of so many ranks; None where there are none.

    `auto` takes the latest success of task=micro below `outputs` on the same device, with the same torch and, on a
    CPU or for collectives, as many ranks. A path is taken as it is.
    """
    if choice == NONE:
        return None
    if choice != AUTO:
        return _calibration(Path(choice), read_limits(Path(choice)), processes)
    latest = max(_like(outputs, processes, environment), key=lambda found: found[1].ended_at, default=None)
    return _calibration(latest[0], latest[1], processes) if latest else None


def read_limits(path: Path) -> RunResult:
    """Read the result that hardware.calibration names by its run's folder; raises ConfigError where it is none."""
    file = path / _RESULT if path.is_dir() else path
    try:
        result = RunResult.model_validate_json(read_text(file))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a result of this llmexp"
        raise ConfigError(
            f"hardware.calibration={path}: {reason}; choices are {AUTO}, {NONE} and the folder of a run of task={TASK}"
        ) from None
    if result.task != TASK or result.status is not RunStatus.SUCCESS:
        raise ConfigError(
            f"hardware.calibration={path}: its task is {result.task} and it ended as {result.status}; "
            f"limits come from a successful run of task={TASK}"
        )
    return result


def _like(outputs: Path, processes: int, environment: Mapping[str, Any]) -> Iterator[tuple[Path, RunResult]]:
    wanted = _machine(environment, processes)
    for file in outputs.glob(f"*/{TASK}_*/{_RESULT}"):
        try:
            result = read_limits(file)
        except ConfigError:
            continue
        if _machine(result.environment, result.processes) == wanted:
            yield file.parent, result


def _machine(environment: Mapping[str, Any], processes: int) -> tuple[Any, ...]:
    """Return what two runs must share for the limits of one to be those of the other."""
    on_cpu = environment.get("device_type") == "cpu"
    device = (environment.get("cpu") or {}).get("model") if on_cpu else environment.get("device_name")
    ranks = (processes, *(environment.get(name) for name in _OF_CPU_RANKS)) if on_cpu else ()
    return device, environment.get("torch"), ranks


def _calibration(folder: Path, result: RunResult, processes: int) -> Calibration:
    limits = {
        name: metric.mean
        for name, metric in result.metrics.items()
        if metric and (result.processes == processes or not name.endswith("_busbw_bytes_per_s"))
    }
    doubt = result.stability.words if result.stability else ""
    return Calibration(run=str(folder), measured_at=result.ended_at, limits=limits, doubt=doubt)
