"""A planned run: the plan, whether it fits, how fast it is expected to be, and what it is expected to cost."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from llmexp.answers.versioned import Answer, Part, SchemaName
from llmexp.launch.preflight import certain_skip
from llmexp.record.memory import Fit, FitVerdict
from llmexp.record.plan import RunPlan
from llmexp.record.skip import SkipCode
from llmexp.registry import get_task
from llmexp.sweep.cost import Cost


class PlanSchema(SchemaName):
    """The schema of this answer."""

    name: Literal["llmexp.plan"] = "llmexp.plan"
    version: Literal[3] = 3


class PlannedMemory(Part):
    """What a rank needs of its device, or on a CPU of its share of the host's memory, in bytes."""

    state_bytes: int = Field(description="training state, or weights; certain")
    need_bytes: int = Field(
        description="the least at the fullest moment, activations and libraries included; estimated"
    )
    most_bytes: int = Field(description="the same with what an allocator may waste")
    capacity_bytes: int = Field(description="of the device, or on a CPU the rank's share of the host's memory")
    parts_bytes: dict[str, int] = Field({}, description="what `need_bytes` consists of, by name")


class PlannedSpeed(Part):
    """The expected rate of one device, and what it goes by."""

    per_device: float = Field(description="in `unit`")
    unit: str = Field(description="such as tokens/s")
    by: str = Field(description="an earlier run, or a published one")
    elsewhere: bool = Field(description="published of another batch, length or number of devices, which `by` names")


class PlannedSkip(Part):
    """Why nothing would be started."""

    code: SkipCode
    reason: str


class PlannedCost(Part):
    """What the run will take of its devices; null where it is not known."""

    held_s: float | None = Field(
        description="seconds for which it holds its devices; 0 where nothing is to be done. At least so many by rates, "
        "flops and peak, at most about so many by limits and requests"
    )
    device_hours: float | None = Field(description="of all devices together; on cpu a rank counts as a device")
    usd: float | None = Field(description="at hardware.price_per_device_hour_usd")
    source: str = Field(
        description="what it goes by: nothing, same, like, paper, rates, limits, pilot, requests, flops, predicted, "
        "peak or unknown"
    )


class PlannedFailures(Part):
    """What failures make of a whole training; simulated at the expected speed, whose own error comes on top."""

    evidence: Literal["simulated"] = "simulated"
    mtbf_s: float = Field(description="mean seconds between failures of all devices together, given by --failures")
    restart_s: float = Field(description="from a failure until steps go on, given")
    checkpoint_bytes: int | None = Field(description="written by all ranks together; null where it is not known")
    checkpoint_s: float = Field(description="for which a checkpoint stops them: given, or by the given bandwidth")
    every_s: float = Field(description="seconds of steps between checkpoints: given, or the best")
    best_every_s: float = Field(description="where most time counts, by Daly's formula of 2006; at least a step")
    useful_share: float = Field(description="of the time that counts; the rest is written, lost or restarted")
    useful_share_low: float = Field(description="lower end of the interval that has nine of ten trainings")
    useful_share_high: float = Field(description="its upper end")
    checkpoint_share: float
    lost_share: float = Field(description="steps done again, and checkpoints that were cut off")
    restart_share: float
    failures: float = Field(description="mean number in a training")
    tokens_per_s: float = Field(description="of all devices, with failures")
    time_s: float = Field(description="of the whole training")
    time_low_s: float
    time_high_s: float
    trials: int = Field(description="simulated trainings")


def _as_plan(found: Any) -> Any:
    return RunPlan.of(found) if isinstance(found, dict) else found


class PlannedRun(Answer):
    """What `llmexp.plan` returns, and `llmexp plan --json` prints, of one run."""

    schema_name: PlanSchema = Field(PlanSchema(), alias="schema")
    name: str = Field(description="the run's name in words, which no other run of its sweep has")
    folder: str = Field(description="where its records are, or will be")
    fits: FitVerdict | None = Field(description="yes, uncertain or no; null where that is not known")
    memory: PlannedMemory | None = Field(description="what `fits` rests on")
    skipped: PlannedSkip | None = Field(description="why the run would be skipped at once; null where it would start")
    speed: PlannedSpeed | None
    cost: PlannedCost
    failures: PlannedFailures | None = Field(
        None, description="of the training that --for names; null without --failures, or where no speed is known"
    )
    plan: Annotated[SerializeAsAny[RunPlan], BeforeValidator(_as_plan)] = Field(
        description="all that is decided, as in the run's plan.json, with a schema version of its own"
    )


def planned_run(cost: Cost, failures: PlannedFailures | None = None) -> PlannedRun:
    """Return the answer about one plan, with what failures make of the training that it was asked for."""
    plan = cost.plan
    fit, skip = get_task(plan.config.task.name).fit(plan), certain_skip(plan)
    return PlannedRun(
        name=plan.name,
        folder=str(plan.folder),
        fits=fit.verdict if fit else None,
        memory=planned_memory(fit),
        skipped=PlannedSkip(code=skip.code, reason=skip.reason) if skip else None,
        speed=_speed(cost),
        cost=PlannedCost(held_s=cost.held_s, device_hours=cost.device_hours, usd=cost.usd, source=cost.source),
        failures=failures,
        plan=plan,
    )


def planned_memory(fit: Fit | None) -> PlannedMemory | None:
    """Return what a rank needs and has; None where that is not known."""
    if fit is None:
        return None
    return PlannedMemory(
        state_bytes=fit.state,
        need_bytes=fit.need,
        most_bytes=fit.most,
        capacity_bytes=fit.capacity,
        parts_bytes=dict(fit.parts),
    )


def _speed(cost: Cost) -> PlannedSpeed | None:
    speed = cost.speed
    if speed is None:
        return None
    unit = cost.plan.rate_unit
    return PlannedSpeed(per_device=speed.per_device, unit=unit, by=speed.by, elsewhere=speed.elsewhere)
