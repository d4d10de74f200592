"""The result of a run and the small records that ranks write; `result.json` is the contract that outside programs read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from llmexp.record.reading import LONGEST_LINES_BYTES, OddFileError, read_text

SCHEMA_VERSION = 1
# JSON has no NaN: a diverged loss is written as null, and read back as NaN.
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


class Record(BaseModel):
    """Base of everything written to a run's folder as JSON."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)


class RunStatus(StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    OOM = "oom"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    KILLED = "killed"

    @property
    def is_answer(self) -> bool:
        """Whether this ending answers the question that the run asked (exit code 0)."""
        return self in (RunStatus.SUCCESS, RunStatus.OOM, RunStatus.SKIPPED)


class Metric(Record):
    """A quantity over repeats. The deviations are sample standard deviations (n - 1); None where n < 2."""

    mean: Number
    std_between_repeats: float | None = None
    std_within_run: float | None = Field(None, description="over the measured steps of all repeats, where the quantity has a value a step")
    n: int = 1


class Batch(Record):
    """Samples per rank and pass, passes per step, samples per step over all data-parallel ranks."""

    micro: int
    accumulation: int
    global_: int = Field(alias="global")

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


class StepSample(Record):
    """One line of samples.<rank>.jsonl: times in seconds since the rank's own start of the loop, positions and tokens of this rank."""

    step: int
    warmup: bool
    t_start_s: float
    t_end_s: float
    positions: int
    real_tokens: int
    samples: int = Field(0, description="records that this rank read; 0 where a program of one's own does not tell")
    record_squares: int | None = Field(None, description="squares of the lengths of the records in it, added up; None where nobody counts them")
    bounded_squares: int | None = Field(None, description="the same of what attention is bounded to: records with padding apart, or whole sequences")
    loss: Number
    at_s: float | None = Field(None, description="Unix time of t_end_s by the clock of the rank's machine; None in samples older than the field")
    phases_s: dict[str, float] | None = None
    memory_bytes: int | None = Field(None, description="allocated on the device (cuda) or resident in the host (cpu) after the step")


class StateBytes(Record):
    """Bytes that one rank holds of one kind of training state, by where they lie."""

    device: int = 0
    host: int = 0


class Energy(Record):
    """What counters of energy told of the measured window; no counter where another rank reads those of the node."""

    seconds: float = Field(description="between the readings")
    joules: dict[str, float] = Field(description="by what the counter covers: GPU board, CPU package-0, …")


class GpuWindow(Record):
    """What NVML counted of a rank's GPU over the measured window: for how long its clocks were held down, by reason (record/throttle_counters.py)."""

    index: int = Field(description="NVML's number of the GPU on its machine")
    seconds: float = Field(description="between the readings")
    throttled_s: dict[str, float] = Field(description="by reason: heat, power brake, power cap, …; one that is missing is not counted")
    power_cap_w: float | None = Field(None, description="as enforced at the window's end")
    power_cap_default_w: float | None = Field(None, description="the card's own")


class RankSummary(Record):
    """rank.<r>.json: what a rank knows at the end; its presence says that the rank finished."""

    rank: int
    window_wall_s: float = Field(description="wall time of the measured window, device work included")
    time_to_first_step_s: float = Field(description="from the interpreter's start to the end of the first step")
    parameters: int | None = Field(description="of the whole model, not of this rank's shard; None where a program of one's own built it")
    trainable_parameters: int | None
    peak_allocated_bytes: int | None = Field(None, description="torch's allocator, cuda only")
    peak_reserved_bytes: int | None = Field(None, description="torch's allocator, cuda only")
    peak_device_used_bytes: int | None = Field(None, description="the device's own count, the largest reading at ends of phases, cuda only")
    peak_rss_bytes: int
    phase_peak_bytes: dict[str, int] = Field(
        default_factory=dict, description="torch's allocator by phase, over the warm-up from its second step, cuda only"
    )
    compiled_in_window: int = Field(0, description="graphs that torch.compile made while steps were being measured")
    state_bytes: dict[str, StateBytes] = Field(description="by kind, as analysis/memory.py reads them; of the optimizer the moments apart")
    what_ran: dict[str, Any] = Field(description="attention_kernel, attention_backend, optimizer_class, engine_optimizer_class, backend, …")
    gradient_norm: float | None = Field(None, description="of the whole model, as the first step took it; None where its optimizer does not tell")
    largest_update: float | None = Field(None, description="by how much the first step changed the parameter that it changed most, of a sample")
    energy: Energy | None = Field(None, description="None where it cannot be read")
    gpu: GpuWindow | None = Field(None, description="None where NVML counts nothing, and in summaries older than the field")
    environment: dict[str, Any] = Field(default_factory=dict, description="rank 0 only")


class RankFailure(Record):
    """failure.<r>.json: why a rank stopped, as far as it could still say."""

    rank: int
    kind: Literal["oom", "hardware", "error"]
    message: str
    traceback: str = ""
    allocator: dict[str, int] = Field(default_factory=dict)


class SmClock(Record):
    """SM clock of one GPU of the run in samples taken inside the measured windows, every 5 s."""

    gpu: str = Field(description="GPU and NVML's number; on another machine than the first its node before it")
    mean_megahertz: float
    lowest_megahertz: float
    card_megahertz: float | None = Field(None, description="the highest that NVML says the card has; GeForce cards never reach it")
    samples: int


class Stability(Record):
    """How far tokens_per_s of a successful run can be believed: a verdict, what speaks against it in words, and a 95 % confidence interval."""

    verdict: Literal["stable", "unstable", "unknown"]
    reasons: list[str] = Field(default_factory=list, description="each with its figures; of an unknown one, what is missing")
    tokens_per_s_low: float | None = Field(None, description="lower end of the 95 % confidence interval")
    tokens_per_s_high: float | None = Field(None, description="its upper end")
    source: Literal["repeats", "steps"] | None = Field(None, description="where the interval is from: repeats, or batches of one repeat's steps")
    drift_ratio: float | None = Field(None, description="median step time, last over first third of the window, of the repeat furthest from 1")
    warmup_ratio: float | None = Field(None, description="median step time, last warm-up steps over the window, of the repeat furthest from 1")
    other_cores: float | None = Field(None, description="mean cores of a host, the most of all hosts, taken during the windows by others' processes")
    sm_clocks: list[SmClock] = Field(default_factory=list, description="of each GPU of the run; none where no sample fell inside a window")
    beside: list[str] = Field(default_factory=list, description="folders of the sweep's runs that were on this host during a window or a part of it")


class RunResult(Record):
    """result.json, written last and by rename. Metrics that the task has not are null."""

    schema_version: int = Field(SCHEMA_VERSION, alias="schema")
    id: str
    stack: str
    status: RunStatus
    reason: str = ""
    failure: RankFailure | None = Field(None, description="the account of the rank that ended the run, its allocator's figures with it")
    evidence: Literal["measured", "emulated", "simulated", "predicted"] = "measured"
    task: str
    engine: str
    model: str
    method: str
    hardware: str
    sweep: str
    world_size: int
    batch: Batch
    seq_len: int
    metrics: dict[str, Metric | None] = Field(default_factory=dict)
    repeats: int = 0
    stability: Stability | None = Field(None, description="None where nothing was measured, and in results older than the field")
    points: list[dict[str, Any]] = Field(default_factory=list)
    what_ran: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)
    command: str
    started_at: str = Field("", description="ISO 8601, UTC")
    ended_at: str = Field("", description="ISO 8601, UTC")
    written_by: str = Field("", description="llmexp's version")

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


def read_samples(path: Path) -> list[StepSample]:
    """Read a samples file; a last line cut off by a kill is left out. Raises OSError, and OddFileError for what is no such file."""
    samples, lines = [], read_text(path, LONGEST_LINES_BYTES).splitlines()
    for number, line in enumerate(lines, 1):
        try:
            samples.append(StepSample.model_validate_json(line))
        except ValueError:
            if number < len(lines):
                raise OddFileError(f"line {number} of {len(lines)} is no sample") from None
    return samples


def origin_unix_s(path: Path, samples: Sequence[StepSample]) -> float:
    """The Unix time at which these samples of a file count from, by the clock of the rank's machine, which samples of the machine go by too.

    Older ones do not say it: their last line was written as their last step ended, by the file server's clock.
    """
    last = samples[-1]
    return (path.stat().st_mtime if last.at_s is None else last.at_s) - last.t_end_s


def to_json(record: BaseModel) -> str:
    """Serialise with indentation and a final newline; NaN and infinity become null."""
    return record.model_dump_json(indent=2) + "\n"
