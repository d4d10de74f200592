"""Advice: the options that a command line leaves open, ranked by a goal, and what comes nearest of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from llmexp.advice.option import Option
from llmexp.advice.ranking import Ranking
from llmexp.answers.planned import PlannedMemory, planned_memory
from llmexp.answers.versioned import Answer, Part, SchemaName
from llmexp.launch.preflight import certain_skip
from llmexp.record.digits import GIB, rounded
from llmexp.record.memory import FitVerdict
from llmexp.record.plan import RunPlan
from llmexp.registry import get_task
from llmexp.report.training_budget import TrainingBudget
from llmexp.version import __version__

# Of what does not fit, more are no neighbors of what does.
NEAREST = 5


class AdviceSchema(SchemaName):
    """The schema of this answer."""

    name: Literal["llmexp.advice"] = "llmexp.advice"
    version: Literal[1] = 1


class AdvisedTraining(Part):
    """What a whole training takes at the option's rate."""

    time_s: float = Field(description="seconds of the whole training on all devices, start-up left out")
    device_hours: float = Field(description="of the whole training, of all devices together")
    usd: float | None = Field(description="price of the whole training, at hardware.price_per_device_hour_usd")


class _Configuration(Part):
    """What every option has, whether it fits or not."""

    hardware: str = Field(description="the hardware's name in the configuration")
    devices: int = Field(description="of all nodes; on a CPU a rank counts as one")
    tokens_per_s: float = Field(description="of all devices together")
    low_tokens_per_s: float = Field(
        description="lower end of the interval in which 9 of 10 measured rates lay; the rate where it was measured"
    )
    high_tokens_per_s: float = Field(description="the interval's upper end")
    changes: list[str] = Field(description="what it computes otherwise than a plain run; empty for the same training")
    memory: PlannedMemory | None = Field(description="of one device; null where it is not known")
    settings: dict[str, Any] = Field(description="by key: the values of all keys that words of an option set")
    id: str = Field(description="digest of what the run would measure, without paths")
    command: str = Field(description="the shell line that starts it")


class AdvisedOption(_Configuration):
    """An option that fits, or that may."""

    rank: int = Field(description="1 is the choice; what fits for sure comes before what may not, by the goal")
    fits: FitVerdict = Field(description="yes, or uncertain where it may not")
    undecided: bool = Field(description="whether predictions cannot tell it from the best that fits as surely")
    measured: bool = Field(description="whether the outputs folder has this very run; else the rate is predicted")
    by: str = Field(description="what the rate goes by")
    tokens_per_usd: float | None = Field(description="at hardware.price_per_device_hour_usd; null without it")
    training: AdvisedTraining | None = Field(description="null unless a training was asked for")
    time_shares: dict[str, float] = Field(description="share of a sample's predicted time, by part")


class NearMisfit(_Configuration):
    """A configuration that does not fit, though little is missing."""

    lacks_bytes: int | None = Field(description="of a device's memory; null where something else is missing")
    reason: str = Field(description="what is missing, in words")
    fits_with: list[str] = Field(description="changes, each of which makes it fit: atoms such as R, or a key's value")


class OptionsAdvised(Answer):
    """What `llmexp advise --json` prints."""

    schema_name: AdviceSchema = Field(AdviceSchema(), alias="schema")
    written_by: str = Field(__version__, description="llmexp's version")
    goal: str = Field(description="tokens_per_s, tokens_per_usd, time or fits")
    training_tokens: float | None = Field(description="of the whole training that was asked for")
    choice: list[str] = Field(description="the advice in words")
    options: list[AdvisedOption] = Field(description="by rank")
    nearest: list[NearMisfit] = Field(description=f"what does not fit, the nearest first, {NEAREST} at most")


def options_advised(ranking: Ranking, choice: Sequence[str]) -> OptionsAdvised:
    """Return the answer about ranked options; `choice` is the advice in words."""
    options, nearest = [*ranking.sure, *ranking.perhaps], ranking.misfits[:NEAREST]
    keys = list(dict.fromkeys(key for option in (*options, *nearest) for key, _ in _pairs(option.plan)))
    undecided = {option.plan.id for option in ranking.undecided}
    training = ranking.goal.training
    return OptionsAdvised(
        goal=ranking.goal.name,
        training_tokens=training.amount if training else None,
        choice=[words.strip() for words in choice],
        options=[
            _option(option, keys, training, rank=rank, undecided=option.plan.id in undecided)
            for rank, option in enumerate(options, 1)
        ],
        nearest=[_misfit(option, keys) for option in nearest],
    )


def _option(
    option: Option, keys: Sequence[str], training: TrainingBudget | None, *, rank: int, undecided: bool
) -> AdvisedOption:
    speed = option.cost.speed
    return AdvisedOption(
        **_configuration(option, keys),
        rank=rank,
        fits=option.verdict,
        undecided=undecided,
        measured=option.measured,
        by=speed.by if speed and option.measured else option.predicted.source,
        tokens_per_usd=option.tokens_per_usd,
        training=_training(option, training) if training else None,
        time_shares=option.bound,
    )


def _misfit(option: Option, keys: Sequence[str]) -> NearMisfit:
    fit = option.fit
    if fit and fit.need > fit.capacity:
        lacks: int | None = fit.need - fit.capacity
        reason = f"needs {rounded(fit.need / GIB)} GiB of a device, which has {rounded(fit.capacity / GIB)}"
    else:
        lacks, skip = None, certain_skip(option.plan)
        reason = skip.reason.partition(":")[0] if skip else "its size is not known"
    fits_with = get_task(option.plan.config.task.name).fitting(option.plan)
    return NearMisfit(**_configuration(option, keys), lacks_bytes=lacks, reason=reason, fits_with=list(fits_with))


def _configuration(option: Option, keys: Sequence[str]) -> dict[str, Any]:
    low, high = option.interval
    return {
        "hardware": option.plan.config.hardware.name,
        "devices": option.plan.devices,
        "tokens_per_s": option.rate,
        "low_tokens_per_s": low,
        "high_tokens_per_s": high,
        "changes": list(option.changes),
        "memory": planned_memory(option.fit),
        "settings": dict(_settings(option.plan, keys)),
        "id": option.plan.id,
        "command": option.plan.rerun_command,
    }


def _training(option: Option, training: TrainingBudget) -> AdvisedTraining:
    cost = option.training(training)
    return AdvisedTraining(time_s=cost.time_s, device_hours=cost.device_hours, usd=cost.usd)


def _pairs(plan: RunPlan) -> Iterator[tuple[str, str]]:
    """Yield the keys of a plan's words, with their values."""
    for word in plan.overrides:
        key, sign, value = word.lstrip("+~").partition("=")
        if sign:
            yield key, value


def _settings(plan: RunPlan, keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield what the configuration has for these keys: a group's name, or a key's value; other words have none."""
    config = plan.config.model_dump(mode="json")
    for key in keys:
        found: Any = config
        *sections, last = key.split(".")
        for part in sections:
            found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping) and last in found:
            value = found[last]
            yield key, value.get("name") if isinstance(value, Mapping) else value
