"""What an engine is to the planner and to what starts its ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from llmexp.method import Method, Techniques
from llmexp.plan.dims import ParallelDims
from llmexp.plan.instructions import PARQUET
from llmexp.plan.memory import StatePlacement, Storage, zero_storage
from llmexp.plan.moments import moment_bytes
from llmexp.plan.schedules import Passes
from llmexp.record.plan import Command
from llmexp.schema import CpKind, InstructionsData, RunConfig, TrainingConfig

C = TypeVar("C", bound=RunConfig)


class Engine(ABC, Generic[C]):
    """Decides before the run; the worker in `launchers/` only does what the plan says. Each task has engines of its own kind."""

    name: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]
    """Names of the tasks that it does."""
    modules: ClassVar[tuple[str, ...]]
    """What its ranks cannot start without, whatever the run."""
    distributions: ClassVar[tuple[str, ...]]
    """Python distributions whose versions decide what is measured; part of the result's stack."""

    launchers: ClassVar[tuple[str, ...]] = ("spawn", "torchrun")
    """Values of engine.launcher that it can be started by."""

    extras: ClassVar[str] = "train"
    """Of llmexp, which install `modules`."""

    def needed_modules(self, config: C) -> tuple[str, ...]:
        """What the ranks of this run import."""
        return self.modules

    def advice(self, config: C, reason: str) -> str:
        """Say what a person can do about a run that failed for this reason; empty where the engine knows nothing."""
        return ""


class TrainingEngine(Engine[TrainingConfig]):
    """Runs the training step: says what it cannot do, writes its native configuration and the command that starts its ranks."""

    tasks = ("pretrain", "finetune")

    builds_model: ClassVar[bool] = True
    """Whether its ranks build the configuration's model, so that its size and FLOPs are what is measured."""

    schedules: ClassVar[Mapping[str, Passes]] = {}
    """Of pipelines, which it has, each with the passes that it takes."""

    cp_chunks: ClassVar[Mapping[CpKind, int]] = {}
    """Its kinds of context parallelism, its own choice first, with the chunks of a sequence that a rank takes."""

    keeps_weights: ClassVar[bool] = False
    """Whether its ranks can save the weights that they trained."""

    @abstractmethod
    def unsupported(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Say why this engine cannot run the combination, or None; the run is then skipped with this reason."""

    def keeps_master_copy(self, config: TrainingConfig, techniques: Techniques) -> bool:
        """Whether the optimizer updates a copy of the parameters of its own."""
        return config.precision.master != config.precision.parameters

    def storage(self, config: TrainingConfig, techniques: Techniques) -> Storage:
        """How the ranks hold training state, for the plan's arithmetic: ZeRO's way, unless an engine has another."""
        made = zero_storage(
            config.precision,
            techniques,
            moment_bytes(config, techniques) or 0,
            master_copy=self.keeps_master_copy(config, techniques),
        )
        return replace(made, gradients=StatePlacement(0)) if config.optimizer.fused_backward else made

    def needed_modules(self, config: TrainingConfig) -> tuple[str, ...]:
        """What the ranks of this run import: `modules`, what Q and QL, adapters, the optimizer, C on GPUs, Liger and the data need."""
        package, techniques = config.optimizer.package, Method.parse(config.method, config.task.name).techniques
        wanted = {
            "bitsandbytes": techniques.quantization is not None or package == "bitsandbytes",
            "pytorch_optimizer": package == "pytorch_optimizer",
            "peft": techniques.adapter is not None,
            "liger_kernel": config.kernels.liger,
            "triton": techniques.compilation and config.hardware.device == "cuda",
            "datasets": config.data.dataset is not None,
            "pyarrow": isinstance(config.data, InstructionsData)
            and any(pattern.endswith(PARQUET) for pattern in config.data.files),
        }
        return self.modules + tuple(name for name, needed in wanted.items() if needed)

    def recomputes_whole(self, techniques: Techniques) -> bool:
        """Whether what R and RS run again runs to its end: torch's checkpoints stop where they have all that backward needs."""
        return False

    def known_options(self, config: TrainingConfig, native: Mapping[str, Any]) -> Collection[str] | None:
        """Names of engine.options that it looks at in this run, whose native configuration is given; None where that is not known."""
        return native

    @abstractmethod
    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """The configuration in the engine's own terms; engine.options are merged over it."""

    @abstractmethod
    def command(self, config: TrainingConfig, dims: ParallelDims) -> Command:
        """The command that starts one repeat's ranks of one node.

        '{folder}' stands for the repeat's folder, '{address}' and '{port}' for where its nodes meet (a free port), '{node}' for this node's number.
        """
