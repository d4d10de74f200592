"""The result of a run: `result.json` is the contract that outside programs read."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

from llmexp.record.samples import Number, RankFailure, Record
from llmexp.record.skip import SkipCode
from llmexp.record.what_ran import Account, WhatRan

SCHEMA_VERSION = 2


class RunStatus(StrEnum):
    """The way in which a run ended."""

    SUCCESS = "success"
    OOM = "oom"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    KILLED = "killed"

    @property
    def is_answer(self) -> bool:
        """True where this ending answers the question that the run asked (exit code 0)."""
        return self in (RunStatus.SUCCESS, RunStatus.OOM, RunStatus.SKIPPED)


class Metric(Record):
    """A quantity over repeats; its deviations are sample standard deviations (n - 1), None where n < 2."""

    mean: Number
    std_between_repeats: float | None = None
    std_within_run: float | None = Field(
        None, description="over the measured steps of all repeats, where the quantity has a value a step"
    )
    n: int = 1


class Turn(Record):
    """One repeat that was begun: when, in ISO 8601, UTC, and by which of the processes that drove the run."""

    repeat: int
    began_at: str
    ended_at: str
    driver: int = Field(0, description="0, and one more after each interruption after which repeats were kept")

    @property
    def seconds(self) -> float:
        """The time from its begin to its end."""
        return seconds_between(self.began_at, self.ended_at)


class Batch(Record):
    """The batch: samples per rank and pass, passes per step, and samples per step over all data-parallel ranks."""

    micro: int
    accumulation: int
    global_: int = Field(alias="global")

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


class SmClock(Record):
    """The SM clock of one GPU of the run, from samples taken every 5 s inside the measured windows."""

    gpu: str = Field(description="GPU and NVML's number; on another machine than the first its node before it")
    mean_megahertz: float
    lowest_megahertz: float
    card_megahertz: float | None = Field(
        None, description="the highest that NVML says the card has; GeForce cards never reach it"
    )
    samples: int
    power_cap_watts: float | None = Field(None, description="the cap on the board's power")
    share_at_power_cap: float | None = Field(
        None, description="share of the measured window in which the cap held the clock down, in the worst one; by NVML"
    )


class DoubtKind(StrEnum):
    """The kind of what speaks against relying on a measurement."""

    CONTENTION = "contention"
    GPU_CONTENTION = "gpu_contention"
    THROTTLING = "throttling"
    COMPILATION = "compilation"
    SKIPPED = "skipped"
    DRIFT = "drift"
    WARMUP = "warmup"
    HOST = "host"
    NOISE = "noise"
    CLIENT = "client"
    ANSWERS = "answers"
    REQUESTS = "requests"
    MISSING = "missing"
    OTHER = "other"


# How the reasons of schema 1 begin, which had no kinds. The first one is of cores of the host; there was one of GPUs.
_BEGINS = {
    r"(\S+: )?contention: .* cores while the ranks": DoubtKind.CONTENTION,
    r"(\S+: )?contention: ": DoubtKind.GPU_CONTENTION,
    r"(\S+: )?GPU \d+ throttled": DoubtKind.THROTTLING,
    "compilation: ": DoubtKind.COMPILATION,
    "drift: ": DoubtKind.DRIFT,
    "warm-up not settled": DoubtKind.WARMUP,
    "host between steps": DoubtKind.HOST,
    "noise: ": DoubtKind.NOISE,
    "client: ": DoubtKind.CLIENT,
    "requests: ": DoubtKind.REQUESTS,
    "too few steps|warm-up too short|steps scatter|one repeat is|sequences grew": DoubtKind.MISSING,
}


class Doubt(Record):
    """What speaks against relying on a measurement, or is missing to judge it: its kind, and words with the figures."""

    kind: DoubtKind
    words: str

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _of_schema_1(cls, found: Any) -> Any:
        if not isinstance(found, str):
            return found
        kind = next((kind for begin, kind in _BEGINS.items() if re.match(begin, found)), DoubtKind.OTHER)
        return {"kind": kind, "words": found}


class Stability(Record):
    """The reliability of a successful run's rate: a verdict, the reasons against it, and a 95 % confidence interval."""

    verdict: Literal["stable", "unstable", "unknown"]
    reasons: list[Doubt] = Field(default_factory=list, description="of an unknown verdict, what is missing")
    metric: str = Field("", description="the rate that is judged, such as tokens_per_s")
    low: float | None = Field(None, description="lower end of its 95 % confidence interval")
    high: float | None = Field(None, description="the interval's upper end")
    source: Literal["repeats", "steps"] | None = Field(
        None, description="where the interval is from: repeats, or batches of one repeat's steps"
    )
    drift_ratio: float | None = Field(
        None, description="median step time, last over first third of the window, of the repeat furthest from 1"
    )
    warmup_ratio: float | None = Field(
        None, description="median step time, last warm-up steps over the window, of the repeat furthest from 1"
    )
    other_cores: float | None = Field(
        None, description="mean cores of a host, the most of all hosts, taken during the windows by others' processes"
    )
    sm_clocks: list[SmClock] = Field(
        default_factory=list, description="of each GPU of the run; none where no sample fell inside a window"
    )
    concurrent_runs: list[str] = Field(
        default_factory=list,
        validation_alias=AliasChoices("concurrent_runs", "beside"),  # results of before 0.1.0 have the second
        description="folders of the sweep's runs that were on this host during a window or a part of it",
    )

    @property
    def words(self) -> str:
        """All reasons, in words."""
        return "; ".join(reason.words for reason in self.reasons)


class PointVerdict(Record):
    """An answer to one question about a point, such as kept_up, and what it rests on."""

    answer: str
    reasons: list[str] = Field(default_factory=list)
    more_requests_tell: bool = Field(True, description="of an unknown answer; False: no number of requests would")


class ResultPoint(Record):
    """One of several answers of a run, for example of a server under several loads: the parameters and the metrics."""

    params: dict[str, Any]
    metrics: dict[str, Metric | None]
    problem: str = Field("", description="why it could not be measured")
    verdicts: dict[str, PointVerdict] = Field(default_factory=dict, description="what is concluded, by the question")


class RunResult(Record):
    """The content of result.json, written last and by rename; null stands for what the task does not have."""

    schema_version: int = Field(SCHEMA_VERSION, alias="schema")
    id: str
    stack: str
    status: RunStatus
    reason: str = ""
    skip: SkipCode | None = Field(None, description="of a skipped run; none in older results")
    failure: RankFailure | None = Field(
        None, description="the account of the rank that ended the run, its allocator's figures with it"
    )
    evidence: Literal["measured", "emulated", "simulated", "predicted"] = "measured"
    task: str
    engine: str
    model: str | None = None
    method: str | None = None
    hardware: str
    sweep: str
    processes: int = Field(description="ranks on all nodes together")
    devices: int = Field(description="that they computed on; on cpu a rank counts as a device")
    batch: Batch | None = None
    seq_len: int | None = None
    metrics: dict[str, Metric | None] = Field(default_factory=dict)
    repeats: int = 0
    order: Literal["run_by_run", "interleaved"] = Field(
        "run_by_run", description="interleaved: between two repeats, other runs of the sweep had one each"
    )
    turns: list[Turn] = Field(default_factory=list, description="the repeats that were begun; none in older results")
    stability: Stability | None = Field(None, description="None where nothing was measured")
    points: list[ResultPoint] = Field(default_factory=list, description="further answers, where a run gives several")
    started_from: str = Field("", description="digest of the weights of the run that it started from, by model=@NAME")
    what_ran: Account = Field(default_factory=WhatRan)
    environment: dict[str, Any] = Field(default_factory=dict)
    command: str
    started_at: str = Field("", description="ISO 8601, UTC")
    ended_at: str = Field("", description="ISO 8601, UTC")
    written_by: str = Field("", description="llmexp's version")

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    @field_validator("schema_version")
    @classmethod
    def _of_today(cls, version: int) -> int:
        return max(version, SCHEMA_VERSION)

    @property
    def held_s(self) -> float | None:
        """The time for which the run held its devices: from its first record to its last, or its turns alone.

        None where that is not known.
        """
        if self.order == "interleaved":
            return sum(turn.seconds for turn in self.turns)
        return seconds_between(self.started_at, self.ended_at) if self.started_at and self.ended_at else None


def seconds_between(begin: str, end: str) -> float:
    """Return the seconds between two times in ISO 8601."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def to_json(record: BaseModel) -> str:
    """Serialize with indentation and a final newline; NaN and infinity become null."""
    return record.model_dump_json(indent=2) + "\n"
