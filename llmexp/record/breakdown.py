"""Where the time of a run's profiled steps went: breakdown.json, which llmexp/traces makes of its traces."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

from llmexp.errors import RecordError
from llmexp.record.calibration import Calibration
from llmexp.record.counted import AttentionTime, CountedPeaks, GemmTime
from llmexp.record.ranges import SERVER_PHASES
from llmexp.record.reading import read_text
from llmexp.record.samples import Record

if TYPE_CHECKING:
    from llmexp.record.folder import RunFolder


class BreakdownShare(Record):
    """The time of one phase of the steps, in nanoseconds; the parts add up to `time_ns`.

    Communication and copies count where no computation hides them. Idle is the time before the phase's next work.
    """

    phase: str
    steps: NonNegativeInt = 0
    time_ns: NonNegativeInt
    compute_ns: NonNegativeInt
    communication_ns: NonNegativeInt
    copy_ns: NonNegativeInt
    idle_ns: NonNegativeInt
    gemm_ns: NonNegativeInt
    collectives: dict[str, NonNegativeInt] = Field(default_factory=dict, description="its communication by what it is")

    @property
    def gemm_share(self) -> float:
        """The share of the phase's time in which matrices are multiplied, 0 to 1."""
        return self.gemm_ns / self.time_ns if self.time_ns else 0.0


class ModuleTime(Record):
    """The computation of one module in one phase, without the modules in it; `path` begins with the outermost module.

    `exclusive_ns` adds up to the breakdown's `compute_ns` over all rows; `work_ns` counts overlapping work in full.
    """

    phase: str
    path: tuple[str, ...]
    recomputed: bool
    exclusive_ns: NonNegativeInt
    work_ns: NonNegativeInt
    gemm_ns: NonNegativeInt
    pieces: NonNegativeInt
    kinds: dict[str, NonNegativeInt] = Field(default_factory=dict, description="exclusive_ns by kind of work; servers'")


class KernelTime(Record):
    """All calls of one kernel or operator."""

    name: str
    kind: str
    calls: PositiveInt
    work_ns: NonNegativeInt
    copied_bytes: NonNegativeInt = 0


class Breakdown(Record):
    """One rank's profiled steps; all times are nanoseconds over all steps.

    compute + exposed communication + exposed copies + idle = window, and the parts of idle add up to it. Idle is
    `late` where the host had not yet launched what came next, `queued` where that was waiting already, and
    `unexplained` where the trace does not say when it was launched. `gemms` and `attention` are the costliest shapes;
    `counted_flops` are the operations of all whose shapes the trace has, and `counted_ns` is their part of compute.
    """

    source: str
    on_device: bool
    steps: NonNegativeInt
    window_ns: PositiveInt
    compute_ns: NonNegativeInt
    exposed_communication_ns: NonNegativeInt
    exposed_copy_ns: NonNegativeInt
    idle_ns: NonNegativeInt
    idle_late_ns: NonNegativeInt
    idle_queued_ns: NonNegativeInt
    idle_unexplained_ns: NonNegativeInt
    communication_ns: NonNegativeInt
    copy_ns: NonNegativeInt
    phases: list[BreakdownShare]
    modules: list[ModuleTime]
    kernels: list[KernelTime]
    gemms: list[GemmTime] = Field(default_factory=list)
    attention: list[AttentionTime] = Field(default_factory=list)
    counted_ns: NonNegativeInt = 0
    counted_flops: NonNegativeFloat = 0.0
    device_name: str = ""
    kinds: dict[str, int] = Field(default_factory=dict)
    truncated: bool = False
    odd_events: NonNegativeInt = 0

    @property
    def busy_ns(self) -> int:
        """The time in which the device computed, communicated or copied."""
        return self.window_ns - self.idle_ns

    @property
    def counted_steps(self) -> int:
        """The number of steps, 1 where the trace does not tell."""
        return self.steps or 1


class CollectiveTime(Record):
    """The calls of one collective, as a mean over ranks.

    A call begins for real when the last rank has come, so `pure_ns` is from then on, and `waited_ns` the rest of
    `work_ns`; both are None where the ranks' calls do not match.
    """

    name: str
    calls: PositiveInt
    work_ns: NonNegativeInt
    pure_ns: NonNegativeInt | None
    waited_ns: NonNegativeInt | None


class RunBreakdown(Record):
    """The breakdowns of the ranks that were traced, in order, and what only all of them together show.

    `repeat` is the repeat's number, `peaks` are those of the run's hardware, and `calibration` has the limits that
    were measured on it. `remark` says what is missing, and why.
    """

    repeat: NonNegativeInt
    ranks: list[Breakdown]
    collectives: list[CollectiveTime] = Field(default_factory=list)
    moved_bytes: dict[str, NonNegativeInt] = Field(
        default_factory=dict,
        description="by kind of collective: of all calls of a rank, the larger of what it puts in and gets out",
    )
    peaks: CountedPeaks = CountedPeaks()
    processes: PositiveInt = 1
    calibration: Calibration | None = None
    remark: str = ""

    @property
    def is_server(self) -> bool:
        """Tell whether the steps are a server's, which differ in kind: each phase is that of steps of its own."""
        return any(phase.phase in SERVER_PHASES for rank in self.ranks for phase in rank.phases)

    @property
    def figures(self) -> dict[str, float]:
        """The shares of the profiled step, as means over ranks; GEMMs have those of the busy time and of each phase.

        FLOP/s are those of the work whose shapes are known, over its own time; it has a share of the computing time.
        """
        if not self.ranks:
            return {}
        shares = {
            "compute_share": [rank.compute_ns / rank.window_ns for rank in self.ranks],
            "exposed_communication_share": [rank.exposed_communication_ns / rank.window_ns for rank in self.ranks],
            "exposed_copy_share": [rank.exposed_copy_ns / rank.window_ns for rank in self.ranks],
            "idle_share": [rank.idle_ns / rank.window_ns for rank in self.ranks],
            "gemm_share_of_busy": [rank.kinds.get("GEMM", 0) / max(1, rank.busy_ns) for rank in self.ranks],
            "step_time_s": [rank.window_ns / rank.counted_steps / 1e9 for rank in self.ranks],
        }
        counted_ns = sum(rank.counted_ns for rank in self.ranks)
        if counted_ns:
            shares["counted_share_of_compute"] = [rank.counted_ns / max(1, rank.compute_ns) for rank in self.ranks]
            shares["counted_tflops_per_s"] = [sum(rank.counted_flops for rank in self.ranks) / counted_ns / 1e3]
        if self.is_server:
            del shares["step_time_s"]
            shares |= self._step_times()
        return {name: fmean(values) for name, values in shares.items()} | self._gemm_shares()

    def _step_times(self) -> dict[str, list[float]]:
        """Return the seconds of a server's step by what it does: they are no steps of one kind."""
        times: dict[str, list[float]] = {}
        for phase in (phase for rank in self.ranks for phase in rank.phases if phase.steps):
            times.setdefault(f"{_word(phase.phase)}_step_time_s", []).append(phase.time_ns / phase.steps / 1e9)
        return times

    def _gemm_shares(self) -> dict[str, float]:
        phases = [phase for rank in self.ranks for phase in rank.phases if phase.phase]
        shares: dict[str, list[float]] = {}
        for phase in phases:
            shares.setdefault(f"gemm_share_of_{_word(phase.phase)}", []).append(phase.gemm_share)
        return {name: fmean(values) for name, values in shares.items()}


def _word(phase: str) -> str:
    return phase.replace(" ", "_")


def read_breakdown(folder: RunFolder) -> RunBreakdown | None:
    """Return a run's breakdown, None where nothing was traced or read; raises RecordError where it is damaged."""
    if not folder.breakdown_path.exists():
        return None
    try:
        found = RunBreakdown.model_validate_json(read_text(folder.breakdown_path))
    except ValidationError as error:
        raise RecordError(
            f"{folder.breakdown_path} is not a breakdown of this llmexp: {error.errors()[0]['msg']}"
        ) from None
    return found if found.ranks else None
