"""The torchft engine trains replicas that are killed on purpose, to measure what a failure costs.

With recovery=heal the other replicas go on, and the one that starts again takes their weights, by torchft. With
recovery=restart all start again from the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from llmexp.errors import ConfigError, unknown
from llmexp.launch.commands import module
from llmexp.launchers.torchft.lives import CHECKPOINTS, HEARTBEAT, KILLS, RECOVERY
from llmexp.method import Techniques
from llmexp.record.plan import Command, RunPlan
from llmexp.record.samples import RecoveryKind
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import FLASH_PACKAGES, TrainingEngine
from llmexp.training.limits import flash_without_bf16
from llmexp.training.optimizer_limits import misdeclared_moments
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.memory import Storage

SUPERVISOR = "llmexp.launchers.torchft.supervisor"
# torchft's own default for how long a silent replica counts as alive.
DEFAULTS: Mapping[str, Any] = {RECOVERY: "heal", KILLS: [], CHECKPOINTS: None, HEARTBEAT: 5.0}


class TorchFtEngine(TrainingEngine):
    """An engine for replicas of whole models that die and come back."""

    name = "torchft"
    launchers = ("spawn",)
    builds_transformers = True
    modules = ("torch", "transformers", "accelerate")
    extras = "train,torchft"
    distributions = ("torchft", "torch", "transformers", *FLASH_PACKAGES)

    def unsupported(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Say what replicas that die do not have here: anything but whole models that each hold all of the state."""
        lacks = (
            _beyond_replicas(techniques)
            or ("precision.qat has not been tried with it: leave that out" if config.precision.qat else "")
            or _other_dtypes(config)
            or _other_window(config)
            or _other_optimizer(config)
            or ("one machine holds all replicas: set hardware.nodes=1" if config.hardware.nodes > 1 else "")
        )
        if lacks:
            return f"engine=torchft: {lacks}"
        return misdeclared_moments(config) or flash_without_bf16(config, techniques)

    def needed_modules(self, config: TrainingConfig) -> tuple[str, ...]:
        """Return torchft too where replicas heal."""
        heals = config.engine.options.get(RECOVERY, DEFAULTS[RECOVERY]) == "heal"
        return super().needed_modules(config) + ("torchft",) * heals

    def storage(self, config: TrainingConfig, techniques: Techniques) -> Storage:
        """Describe DDP's state: gradients are views of its buckets, which stay."""
        return replace(super().storage(config, techniques), gradients_stay=True)

    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """Return how replicas die and recover; raises ConfigError for values that mean nothing."""
        if odd := next((key for key in config.engine.options if key not in DEFAULTS), None):
            raise unknown("engine.options of engine=torchft", odd, DEFAULTS)
        chosen = {**DEFAULTS, **config.engine.options}
        if chosen[RECOVERY] not in get_args(RecoveryKind):
            raise unknown(f"engine.options.{RECOVERY}", str(chosen[RECOVERY]), get_args(RecoveryKind))
        if dims.dp < 2:
            raise ConfigError(f"parallelism.dp={dims.dp}: engine=torchft kills one of several replicas: set 2 or more")
        _check_kills(chosen[KILLS], config)
        _check_checkpoints(chosen)
        if not _is_number(chosen[HEARTBEAT]) or chosen[HEARTBEAT] <= 0:
            raise ConfigError(f"engine.options.{HEARTBEAT}={chosen[HEARTBEAT]}: set seconds above 0")
        return chosen

    def undisturbed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options without deaths, which few steps have no room for."""
        return {**options, KILLS: []}

    def known_options(self, config: TrainingConfig, native: Mapping[str, Any]) -> Collection[str] | None:
        """Return the engine's own options, which `native_config` has checked."""
        return tuple(DEFAULTS)

    def clean_up(self, plan: RunPlan, folder: Path) -> None:
        """Remove checkpoints, which are as large as the training state, of earlier attempts that were killed too."""
        for left in folder.glob("**/repeat.*/checkpoint.*"):
            left.unlink()

    def command(self, config: TrainingConfig, dims: ParallelDims) -> Command:
        """Return the command of the supervisor, which starts the replicas, some of them several times."""
        started = module(config, [SUPERVISOR, "{folder}"])
        # torchft logs each quorum of each step otherwise.
        return started.model_copy(update={"env": {"RUST_LOG": "warn"} | started.env})


def _beyond_replicas(techniques: Techniques) -> str:
    """Return why a method cannot be used; what changes the model alone can."""
    beyond = {
        "Z1, Z2 and Z3": techniques.zero_stage > 0,
        "O": techniques.offload_optimizer,
        "C": techniques.compilation,
        "Q and QL": techniques.quantization is not None,
        "L and P": techniques.adapter is not None,
    }
    names = [name for name, used in beyond.items() if used]
    return f"each replica holds all of the training state as it is: leave {' and '.join(names)} out" if names else ""


def _other_dtypes(config: TrainingConfig) -> str:
    precision = config.precision
    if len({precision.parameters, precision.gradients, precision.master, precision.moments}) == 1:
        return ""
    return f"precision={precision.name} has several dtypes of state: set precision=fp32 or precision=bf16_pure"


def _other_optimizer(config: TrainingConfig) -> str:
    chosen = config.optimizer
    if chosen.fused_backward:
        return f"optimizer={chosen.name} updates in backward, before a step is committed: set optimizer=adamw"
    if chosen.rest is not None:
        return f"optimizer={chosen.name} is two, whose states another replica cannot load: set optimizer=adamw"
    return ""


def _other_window(config: TrainingConfig) -> str:
    measure = config.measure
    other = [key for key in ("duration_s", "stop_at_interval_share") if getattr(measure, key)]
    return f"steps end its window: set measure.steps, and leave measure.{other[0]} out" if other else ""


def _check_kills(steps: Any, config: TrainingConfig) -> None:
    """Raise ConfigError unless steps are whole numbers, in order, with an undisturbed step before and one after."""
    first = config.measure.warmup_steps + 1
    last = config.measure.warmup_steps + config.measure.steps - 2
    given = f"engine.options.{KILLS}={steps}"
    if not isinstance(steps, list) or not all(type(step) is int for step in steps):
        raise ConfigError(f"{given}: list numbers of steps, such as [{first}]")
    outside = [step for step in steps if not first <= step <= last]
    if outside:
        raise ConfigError(
            f"{given}: step {outside[0]} is outside of {first} to {last}, the measured steps without the first and the "
            "last one (warm-up counts from 0)"
        )
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise ConfigError(f"{given}: name each step once, in order")


def _check_checkpoints(chosen: Mapping[str, Any]) -> None:
    every = chosen[CHECKPOINTS]
    if every is not None and (type(every) is not int or every < 1):
        raise ConfigError(f"engine.options.{CHECKPOINTS}={every}: set a number of steps from 1, or null for none")
    if chosen[RECOVERY] == "restart" and chosen[KILLS] and every is None:
        raise ConfigError(
            f"engine.options.{RECOVERY}=restart starts again from a checkpoint: set engine.options.{CHECKPOINTS}"
        )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


ENGINE = TorchFtEngine()
