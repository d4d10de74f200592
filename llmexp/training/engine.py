"""The interface of the engines that train."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from llmexp.dtypes import HALF, SINGLE
from llmexp.inputs.instructions import PARQUET
from llmexp.method import Method, Techniques
from llmexp.record.plan import Command
from llmexp.schema import CpKind
from llmexp.tasks.engine import Engine
from llmexp.training.config import InstructionsData, TrainingConfig
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.memory import StatePlacement, Storage, zero_storage
from llmexp.training.plan.moments import moment_bytes
from llmexp.training.plan.schedules import Passes

# The packages that may compute atom F.
FLASH_PACKAGES = ("flash-attn", "flash-attn-3", "flash-attn-4")


class TrainingEngine(Engine[TrainingConfig]):
    """An engine that trains: it says what it cannot do, and gives its native configuration and its ranks' command."""

    tasks = ("pretrain", "finetune")

    builds_model: ClassVar[bool] = True
    """Its ranks build the configuration's model, so that the planned size and FLOPs are those measured."""

    degrees: ClassVar[Collection[str]] = ("dp",)
    """Its degrees of parallelism, by name; runs with others are skipped."""

    cuts: ClassVar[Collection[str]] = ()
    """What it takes of the keys `parallelism.ends_as_layers`, `etp` and `shard`, by their last names."""

    schedules: ClassVar[Mapping[str, Passes]] = {}
    """Its pipeline schedules, each with the numbers of passes that it takes."""

    dtypes: ClassVar[Collection[str]] = (SINGLE, HALF)
    """The formats of parameters that its ranks train; empty where these are all that torch holds."""

    linears: ClassVar[Collection[str]] = ()
    """The formats other than the parameters' that its ranks multiply linear layers in."""

    cp_chunks: ClassVar[Mapping[CpKind, int]] = {}
    """Its kinds of context parallelism, the default first, each with the chunks of a sequence that a rank takes."""

    keeps_weights: ClassVar[bool] = False
    """Its ranks can save the weights that they trained."""

    builds_transformers: ClassVar[bool] = False
    """Its ranks build models of transformers, which kernels.flash and kernels.liger change."""

    chunks_loss: ClassVar[bool] = False
    """Its ranks build other models, whose loss they can compute in chunks, as kernels.chunked_loss asks."""

    grows_sequences: ClassVar[bool] = False
    """Its ranks take sequences of several lengths in one run, as data.seq_len_schedule has them."""

    sets_updates: ClassVar[bool] = False
    """Its ranks set each step's learning rate and clip gradients, as the keys of the optimizer say."""

    offloads_activations_with: ClassVar[int | None] = None
    """The highest ZeRO stage with which memory.activation_offload works; None where it never does."""

    keeps_states_on_disk: ClassVar[bool] = False
    """It can keep the optimizer's states in files, as memory.optimizer_folder asks."""

    recomputes_in_stages: ClassVar[bool] = False
    """Each of its pipeline's stages can compute a part of its layers again, as memory.recompute_layers asks."""

    fuses_accumulation: ClassVar[bool] = False
    """Its ranks can add products to gradients in place, as kernels.fused_accumulation asks."""

    traces_memory: ClassVar[bool] = False
    """Its workers build and step a rank without memory, for `llmexp plan --trace-memory`."""

    @abstractmethod
    def unsupported(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Say why this engine cannot run the combination, as the reason of a skip; return None where it can."""

    def keeps_master_copy(self, config: TrainingConfig, techniques: Techniques) -> bool:
        """Tell whether the optimizer updates its own copy of the parameters."""
        return config.precision.master != config.precision.parameters

    def storage(self, config: TrainingConfig, techniques: Techniques) -> Storage:
        """Describe how the ranks hold training state, for the plan's arithmetic; the default is ZeRO's way."""
        made = zero_storage(
            config.precision,
            techniques,
            moment_bytes(config, techniques) or 0,
            master_copy=self.keeps_master_copy(config, techniques),
        )
        made = replace(made, gradients_stay=config.batch.accumulation > 1)
        return replace(made, gradients=StatePlacement(0)) if config.optimizer.fused_backward else made

    def needed_modules(self, config: TrainingConfig) -> tuple[str, ...]:
        """Return `modules` and what Q and QL, adapters, the optimizer, C on GPUs, Liger and the data need besides."""
        package, techniques = config.optimizer.package, Method.parse(config.method, config.task.name).techniques
        wanted = {
            "bitsandbytes": techniques.quantization is not None or package == "bitsandbytes",
            "pytorch_optimizer": package == "pytorch_optimizer",
            "peft": techniques.adapter is not None,
            "liger_kernel": config.kernels.liger,
            "torchao": config.precision.linears is not None or config.precision.qat is not None,
            "flash_attn_interface": config.kernels.flash == "fa3",
            "flash_attn.cute": config.kernels.flash == "fa4",
            "triton": self.compiles(config) and config.hardware.device == "cuda",
            "datasets": config.data.dataset is not None,
            "pyarrow": isinstance(config.data, InstructionsData)
            and any(pattern.endswith(PARQUET) for pattern in config.data.files),
        }
        return self.modules + tuple(name for name, needed in wanted.items() if needed)

    def compiles(self, config: TrainingConfig) -> bool:
        """Tell whether the ranks compile code that torch.compile generates, which atom C asks for."""
        return Method.parse(config.method, config.task.name).techniques.compilation

    def recomputes_whole(self, techniques: Techniques) -> bool:
        """Tell whether recomputed layers run to their end; torch's checkpoints stop when backward needs no more."""
        return False

    def known_options(self, config: TrainingConfig, native: Mapping[str, Any]) -> Collection[str] | None:
        """Return the names of engine.options that this run reads; None where they are not known.

        `native` is the native configuration of the run.
        """
        return native

    def undisturbed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the engine.options of a short run, which leaves out what is done to the training on purpose."""
        return dict(options)

    @abstractmethod
    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """Return the configuration in the engine's own terms; engine.options are merged over it."""

    @abstractmethod
    def command(self, config: TrainingConfig, dims: ParallelDims) -> Command:
        """Return the command that starts the ranks of one repeat on one node.

        '{folder}' stands for the repeat's folder, '{address}' and '{port}' for the place where its nodes meet (a free
        port), and '{node}' for this node's number.
        """
