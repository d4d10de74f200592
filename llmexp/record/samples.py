"""The records that ranks write: a sample of each step or request, a summary at the end, and the reason of a failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from llmexp.record.reading import LONGEST_LINES_BYTES, OddFileError, read_text
from llmexp.record.what_ran import Account, WhatRan

# JSON has no NaN: a diverged loss is written as null, and read back as NaN.
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


class Record(BaseModel):
    """The base of everything written to a run's folder as JSON."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)


class Sample(Record):
    """One line of samples.<rank>.jsonl, such as a step; times are seconds since the rank started its loop.

    Each task has a type of its own with more counts. A line of any task can be read as this type for its times.
    """

    index: int = Field(description="of the step, request or call, from 0")
    warmup: bool
    t_start_s: float
    t_end_s: float
    at_s: float | None = Field(
        None, description="Unix time of t_end_s by the clock of the rank's machine; None where the rank did not say"
    )
    memory_bytes: int | None = Field(
        None, description="allocated on the device (cuda) or resident in the host (cpu) afterwards"
    )

    model_config = ConfigDict(extra="ignore")

    @property
    def amount(self) -> float:
        """The work done, in the unit of the task's rate."""
        return 1.0

    @property
    def values(self) -> dict[str, float]:
        """The values that are worth a curve, by name."""
        return {}


class StepSample(Sample):
    """One step, with this rank's positions and tokens."""

    positions: int
    real_tokens: int
    samples: int = Field(0, description="records that this rank read; 0 where a program of one's own does not tell")
    record_squares: int | None = Field(
        None, description="squares of the lengths of the records in it, added up; None where nobody counts them"
    )
    bounded_squares: int | None = Field(
        None, description="the same of what attention is bounded to: records with padding apart, or whole sequences"
    )
    loss: Number
    lr: float | None = Field(None, description="the learning rate of the update; None where nobody told it")
    gradient_norm: float | None = Field(
        None,
        description="of the whole model, before clipping; None where the step computed none, or none that is finite",
    )
    loss_scale: float | None = Field(None, description="the factor of the loss in backward; None without one")
    skipped: bool | None = Field(
        None, description="its gradients overflowed and updated nothing; None where losses are not scaled"
    )
    sequences: str | None = Field(
        None,
        pattern="^[0-9a-f]{1,16}$",
        description="digest of the sequences that this rank read, in the warm-up only; the sum over replicas counts",
    )
    phases_s: dict[str, float] | None = None

    model_config = ConfigDict(extra="forbid")

    @property
    def amount(self) -> float:
        """The step's positions."""
        return self.positions

    @property
    def values(self) -> dict[str, float]:
        """The loss, what the update went by, and the time of each phase."""
        update = {"lr": self.lr, "gradient_norm": self.gradient_norm, "loss_scale": self.loss_scale}
        told = {"loss": self.loss} | {name: value for name, value in update.items() if value is not None}
        return told | {f"{phase}_time_s": seconds for phase, seconds in (self.phases_s or {}).items()}


def digest_text(digest: int) -> str:
    """Return a digest of 64 bits, whatever its sign, as JSON can hold it: 16 hexadecimal digits."""
    return f"{digest % 2**64:016x}"


class StateBytes(Record):
    """The bytes of one kind of training state that one rank holds, by their place."""

    device: int = 0
    host: int = 0
    disk: int = 0


class Energy(Record):
    """The energy of the measured window by its counters; no counter is here if another rank reads the node's."""

    seconds: float = Field(description="between the readings")
    joules: dict[str, float] = Field(description="by what the counter covers: GPU board, CPU package-0, …")


class GpuWindow(Record):
    """NVML's counts for a rank's GPU over the measured window.

    They say how long its clocks were held down, by reason (record/throttle_counters.py).
    """

    index: int = Field(description="NVML's number of the GPU on its machine")
    seconds: float = Field(description="between the readings")
    throttled_s: dict[str, float] = Field(
        description="by reason: heat, power brake, power cap, …; one that is missing is not counted"
    )
    power_cap_w: float | None = Field(None, description="as enforced at the window's end")
    power_cap_default_w: float | None = Field(None, description="the card's own")


class RankSummary(Record):
    """The content of rank.<r>.json, a rank's account at the end; each task has a type of its own.

    The file's presence says that the rank finished.
    """

    rank: int
    window_wall_s: float = Field(description="wall time of the measured window, device work included")
    peak_allocated_bytes: int | None = Field(None, description="torch's allocator, cuda only")
    peak_reserved_bytes: int | None = Field(None, description="torch's allocator, cuda only")
    peak_device_used_bytes: int | None = Field(
        None, description="the device's own count, the largest reading at ends of phases, cuda only"
    )
    peak_rss_bytes: int = Field(description="of the process, in host memory")
    what_ran: Account = Field(default_factory=WhatRan)
    energy: Energy | None = Field(None, description="None where it cannot be read")
    gpu: GpuWindow | None = Field(None, description="None where NVML counts nothing")
    environment: dict[str, Any] = Field(default_factory=dict, description="rank 0 only")

    model_config = ConfigDict(extra="ignore")


RecoveryKind = Literal["heal", "restart"]


class Failure(Record):
    """One death of a replica in the measured window."""

    step: int = Field(description="that the replica died in")
    replica: int
    lost_s: float = Field(
        description="from the begin of that step until it was committed and all replicas took part again, without the "
        "time that undisturbed steps take for the tokens committed meanwhile"
    )
    recovered: bool = Field(
        description="all replicas took part again before the window or the next death; else lost_s ends there"
    )


class Recovery(Record):
    """How a run recovered from failures; its steps are those of the measured window."""

    kind: RecoveryKind
    failures: list[Failure]
    healed: int = Field(description="replicas that took the weights from another one")
    redone_steps: int = Field(description="times that a step was begun again")
    checkpoints: int = Field(description="written to the disk")
    undisturbed_step_s: float = Field(description="median time of the steps in which all replicas took part")
    mean_replicas: float = Field(description="that took part in a step, over all steps")


class TrainingSummary(RankSummary):
    """The summary of a rank that trained."""

    time_to_first_step_s: float = Field(description="from the interpreter's start to the end of the first step")
    parameters: int | None = Field(
        description="of the whole model, not of this rank's shard; None where a program of one's own built it"
    )
    trainable_parameters: int | None
    phase_peak_bytes: dict[str, int] = Field(
        default_factory=dict, description="torch's allocator by phase, over the warm-up from its second step, cuda only"
    )
    compiled_in_window: int = Field(0, description="graphs that torch.compile made while steps were being measured")
    state_bytes: dict[str, StateBytes] = Field(
        description="by kind: parameters, gradients, optimizer; of the optimizer the moments apart"
    )
    gradient_norm: float | None = Field(
        None, description="of the whole model, as the first step took it; None where its optimizer does not tell"
    )
    largest_update: float | None = Field(
        None, description="by how much the first step changed the parameter that it changed most, of a sample"
    )
    recovery: Recovery | None = Field(None, description="None where no replica can die and come back")

    model_config = ConfigDict(extra="forbid")


class RankFailure(Record):
    """The content of failure.<r>.json: why a rank stopped, as far as it could still say."""

    rank: int
    kind: Literal["oom", "hardware", "timeout", "error"]
    message: str
    traceback: str = ""
    allocator: dict[str, int] = Field(default_factory=dict)


S = TypeVar("S", bound=Record)


def read_samples(path: Path, kind: type[S]) -> list[S]:
    """Read a samples file, without a last line that was cut off by a kill.

    Raises OSError, and OddFileError where the file is not one of samples.
    """
    # A line ends at its line feed alone: a server's text may hold other characters at which Python would end one.
    samples, lines = [], read_text(path, LONGEST_LINES_BYTES).removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            samples.append(kind.model_validate_json(line))
        except ValueError:
            if number < len(lines):
                raise OddFileError(f"line {number} of {len(lines)} is no sample") from None
    return samples


def origin_unix_s(path: Path, samples: Sequence[Sample]) -> float:
    """Return the Unix time from which these samples of a file count, by the clock of the rank's machine.

    The samples of the machine use that clock too. Older samples do not record it: for them the file's time is used, by
    the file server's clock, because their last line was written when their last step ended.
    """
    last = samples[-1]
    return (path.stat().st_mtime if last.at_s is None else last.at_s) - last.t_end_s
