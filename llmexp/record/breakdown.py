"""Where the time of a run's profiled steps went: breakdown.json, which llmexp/traces makes of its traces."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from llmexp.record.samples import Record

BREAKDOWN = "breakdown.json"


class Share(Record):
    """The time of one phase of the steps, in nanoseconds; the parts add up to `time_ns`.

    Communication and copies count where no computation hides them. Idle is the time before the phase's next work.
    """

    phase: str
    time_ns: int
    compute_ns: int
    communication_ns: int
    copy_ns: int
    idle_ns: int
    gemm_ns: int


class ModuleTime(Record):
    """The computation of one module in one phase, without the modules in it; `path` begins with the outermost module.

    `exclusive_ns` adds up to the breakdown's `compute_ns` over all rows; `work_ns` counts overlapping work in full.
    """

    phase: str
    path: tuple[str, ...]
    recomputed: bool
    exclusive_ns: int
    work_ns: int
    gemm_ns: int
    pieces: int


class KernelTime(Record):
    """All calls of one kernel or operator."""

    name: str
    kind: str
    calls: int
    work_ns: int


class Breakdown(Record):
    """One rank's profiled steps; all times are nanoseconds over all steps.

    compute + exposed communication + exposed copies + idle = window, and the parts of idle add up to it. Idle is
    `late` where the host had not yet launched what came next, `queued` where that was waiting already, and
    `unexplained` where the trace does not say when it was launched.
    """

    source: str
    on_device: bool
    steps: int
    window_ns: int
    compute_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int
    idle_late_ns: int
    idle_queued_ns: int
    idle_unexplained_ns: int
    communication_ns: int
    copy_ns: int
    phases: list[Share]
    modules: list[ModuleTime]
    kernels: list[KernelTime]
    kinds: dict[str, int] = Field(default_factory=dict)
    truncated: bool = False
    odd_events: int = 0

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
    calls: int
    work_ns: int
    pure_ns: int | None
    waited_ns: int | None


class RunBreakdown(Record):
    """The breakdowns of the ranks that were traced, in order, and what only all of them together show.

    `repeat` is the repeat's number. `remark` says what is missing, and why.
    """

    schema_version: ClassVar[int] = 1
    repeat: int
    ranks: list[Breakdown]
    collectives: list[CollectiveTime] = Field(default_factory=list)
    remark: str = ""
