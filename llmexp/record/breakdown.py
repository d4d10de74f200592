"""Where the time of a run's profiled steps went: breakdown.json, which llmexp/traces makes of its traces."""

from __future__ import annotations

from statistics import fmean

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.reading import read_text
from llmexp.record.samples import Record


class Share(Record):
    """The time of one phase of the steps, in nanoseconds; the parts add up to `time_ns`.

    Communication and copies count where no computation hides them. Idle is the time before the phase's next work.
    """

    phase: str
    time_ns: NonNegativeInt
    compute_ns: NonNegativeInt
    communication_ns: NonNegativeInt
    copy_ns: NonNegativeInt
    idle_ns: NonNegativeInt
    gemm_ns: NonNegativeInt


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


class KernelTime(Record):
    """All calls of one kernel or operator."""

    name: str
    kind: str
    calls: PositiveInt
    work_ns: NonNegativeInt
    copied_bytes: NonNegativeInt = 0


class GemmTime(Record):
    """All matrix products of one operator and shape: batch times [m, k] by [k, n]."""

    operator: str
    batch: NonNegativeInt
    m: NonNegativeInt
    n: NonNegativeInt
    k: NonNegativeInt
    calls: PositiveInt
    work_ns: NonNegativeInt

    @property
    def flops(self) -> int:
        """The floating-point operations of all calls, a multiplication and an addition each."""
        return 2 * self.batch * self.m * self.n * self.k * self.calls


class Breakdown(Record):
    """One rank's profiled steps; all times are nanoseconds over all steps.

    compute + exposed communication + exposed copies + idle = window, and the parts of idle add up to it. Idle is
    `late` where the host had not yet launched what came next, `queued` where that was waiting already, and
    `unexplained` where the trace does not say when it was launched.
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
    phases: list[Share]
    modules: list[ModuleTime]
    kernels: list[KernelTime]
    gemms: list[GemmTime] = Field(default_factory=list)
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

    `repeat` is the repeat's number. `remark` says what is missing, and why.
    """

    repeat: NonNegativeInt
    ranks: list[Breakdown]
    collectives: list[CollectiveTime] = Field(default_factory=list)
    remark: str = ""

    @property
    def figures(self) -> dict[str, float]:
        """The shares of the profiled step, as means over ranks; GEMMs' share is that of the busy time."""
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
        return {name: fmean(values) for name, values in shares.items()}


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
