"""The torch engine uses torch alone: DDP, ZeroRedundancyOptimizer and FSDP2 replace ZeRO's stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from llmexp.dtypes import bytes_of
from llmexp.launch.commands import ranks_of
from llmexp.launchers.torch_native.cut_limits import uncut
from llmexp.launchers.torch_native.expert_limits import unshared_experts
from llmexp.launchers.torch_native.schedules import CLASSES, PASSES, unpipelined
from llmexp.method import Techniques
from llmexp.record.plan import Command
from llmexp.schema import CpKind
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import FLASH_PACKAGES, TrainingEngine
from llmexp.training.limits import adapter_limit, flash_without_bf16, packing_limit, quantized_experts
from llmexp.training.optimizer_limits import misdeclared_moments, sharding_limit
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.float8 import float8_options
from llmexp.training.plan.gathered_units import GatheredUnits, ReducedPart, Units
from llmexp.training.plan.memory import Gathered, StatePlacement, Storage
from llmexp.training.plan.moments import moment_bytes

WORKER = "llmexp.launchers.torch_native.worker"


class TorchEngine(TrainingEngine):
    """An engine for replicas of models, of models with cut matrices or sequences, and of pipelines of stages.

    Z1 partitions the optimizer's states, Z2 and Z3 partition all training state.
    """

    name = "torch"
    degrees = ("dp", "tp", "pp", "cp", "ep")
    cuts = ("shard", "etp")
    cp_chunks: ClassVar[Mapping[CpKind, int]] = {"ring": 2, "ulysses": 2}
    keeps_weights = builds_transformers = grows_sequences = traces_memory = fuses_accumulation = sets_updates = True
    recomputes_in_stages = True
    offloads_activations_with = 1
    modules = ("torch", "transformers", "accelerate")
    distributions = (
        "torch",
        "transformers",
        "peft",
        "bitsandbytes",
        *FLASH_PACKAGES,
        "liger-kernel",
        "triton",
        "torchao",
    )
    launchers = ("spawn", "torchrun", "fork")
    schedules = PASSES
    dtypes = ()
    linears = ("fp8",)

    def unsupported(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Say what torch cannot do here.

        It has no optimizers of DeepSpeed, and keeps only some dtypes.
        """
        wanted = config.optimizer.implementation
        if wanted == "deepspeed" or (wanted == "deepspeed_with_offload" and techniques.offload_optimizer):
            return f"optimizer={config.optimizer.name} is DeepSpeed's: set optimizer=adamw"
        adapter = adapter_limit(config, techniques, dims) or _unsharded_bits(techniques)
        return (
            packing_limit(config, techniques, dims)
            or adapter
            or _unshared(techniques, dims)
            or unshared_experts(config, dims)
            or uncut(config, techniques, dims)
            or unpipelined(config, techniques, dims)
            or sharding_limit(config, techniques, dims)
            or misdeclared_moments(config)
            or flash_without_bf16(config, techniques)
            or quantized_experts(config, techniques)
            or _unkept_dtypes(config, techniques)
        )

    def storage(self, config: TrainingConfig, techniques: Techniques) -> Storage:
        """Describe how the ranks hold training state; without FSDP2 only the gradients in the update are torch's own.

        FSDP2 keeps one partitioned copy, which the optimizer updates. Gradients have the dtype of that copy; gathered
        parameters have precision.parameters.
        """
        if not _shards(techniques):
            made = replace(super().storage(config, techniques), update=self._update(config, techniques))
            return replace(
                made,
                gradients_stay=made.gradients_stay or self._has_buckets(config),
                update_buffers=0.0 if made.update else _of_tied_embedding(config, techniques),
            )
        size, on_host = bytes_of(config.precision.master), techniques.offload_optimizer
        moments = moment_bytes(config, techniques) or 0
        reshards = config.engine.options.get("fully_shard", {}).get("reshard_after_forward", techniques.zero_stage == 3)
        gathered = self._gathered_units(config, techniques, 0 if on_host else size, layers_stay=reshards is False)
        return Storage(
            parameters=StatePlacement(size, True, on_host),
            gradients=StatePlacement(size, True, on_host),
            optimizer=StatePlacement(moments, True, on_host),
            gathered=Gathered(bytes_of(config.precision.parameters), reshards is False, config.batch.accumulation > 1),
            gradients_stay=config.batch.accumulation > 1,
            late_gradients=gathered.late,
            waiting_gradient=gathered.waiting * (techniques.adapter is None),
            buffers=gathered.in_passes,
            update_buffers=gathered.at_end + gathered.rest * (config.batch.accumulation == 1),
        )

    def _gathered_units(
        self, config: TrainingConfig, techniques: Techniques, reduced: int, *, layers_stay: bool
    ) -> GatheredUnits:
        """Return what is gathered; reduced gradients are there before backward where a step has several passes."""
        dims, precision = ParallelDims.of(config, self.schedules, self.cp_chunks), config.precision
        sizes = bytes_of(precision.parameters), bytes_of(precision.gradients)
        parts = ReducedPart(reduced, 1 / dims.sharers, 1 / dims.same_experts, config.batch.accumulation)
        rest_stays = parts.stays and (layers_stay or dims.pp > 1)
        return GatheredUnits(Units.of(config), *sizes, parts, layers_stay, rest_stays, techniques.adapter is None)

    def _has_buckets(self, config: TrainingConfig) -> bool:
        """Tell whether gradients are views of DDP's buckets, which are never freed."""
        dims = ParallelDims.of(config, self.schedules, self.cp_chunks)
        return _in_ddp(dims) and not config.optimizer.fused_backward

    def _update(self, config: TrainingConfig, techniques: Techniques) -> tuple[StatePlacement, ...]:
        """Return all gradients that exist in the update, where MasterCopy copies gradients into the master's dtype.

        DDP's buckets stay meanwhile; without DDP, the gradients of what other ranks update stay.
        """
        precision = config.precision
        if precision.master == precision.parameters or config.optimizer.fused_backward:
            return ()
        dims, shared = ParallelDims.of(config, self.schedules, self.cp_chunks), techniques.zero_stage == 1
        own = 0.0 if _in_ddp(dims) else 1 / dims.same_parameters if shared else 1.0
        left = StatePlacement(bytes_of(precision.parameters) * (1 - own))
        return (left,) * (own < 1) + (StatePlacement(bytes_of(precision.master), shared),)

    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """Return the arguments of torch's wrappers by their names; a single rank without Z1 to Z3 has none of these."""
        schedule = {"schedule": {"schedule_name": CLASSES[dims.schedule]}} if dims.schedule else {}
        if _shards(techniques):
            return (
                float8_options(config)
                | schedule
                | {"fully_shard": {"reshard_after_forward": techniques.zero_stage == 3}}
                | _mixed_precision(config)
                | _offload(config, techniques)
            )
        # Buffers are equal on all ranks and never change.
        replicas = {"gradient_as_bucket_view": True, "broadcast_buffers": False}
        averages = _in_ddp(dims) and not config.optimizer.fused_backward
        native: dict[str, Any] = schedule or ({"distributed_data_parallel": replicas} if averages else {})
        if techniques.zero_stage == 1 and dims.tp == 1:
            native |= {"zero_redundancy_optimizer": {"parameters_as_bucket_view": True}}
        return float8_options(config) | native

    def command(self, config: TrainingConfig, dims: ParallelDims) -> Command:
        """Return the command that starts one rank per device."""
        return ranks_of(config, dims.world_size, WORKER)


def _of_tied_embedding(config: TrainingConfig, techniques: Techniques) -> float:
    """Return the bytes of its gradients that exist when all others do, besides one: two, until they are added up.

    With several passes the sum is a third. Where gradients are then copied for the update, that takes more. Stages each
    have their own backward, so that two are never to be added up at once.
    """
    units = Units.of(config)
    if not units.tied or config.parallelism.pp > 1 or techniques.adapter or config.optimizer.fused_backward:
        return 0.0
    return float(units.embedding * bytes_of(config.precision.gradients) * (1 + (config.batch.accumulation > 1)))


def _in_ddp(dims: ParallelDims) -> bool:
    """Tell whether DDP averages the gradients of whole models; those of cut ones are averaged after backward."""
    return dims.same_parameters > 1 and dims.pp == dims.tp == dims.ep == 1


def _shards(techniques: Techniques) -> bool:
    return techniques.zero_stage >= 2


def _unshared(techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say that nothing is partitioned, or that what is has not been tried with copies of it."""
    if dims.shard is None:
        return None
    beyond = "O" * techniques.offload_optimizer or "L or P" * (techniques.adapter is not None)
    if beyond:
        return f"parallelism.shard={dims.shard} has not been tried with {beyond}: leave one of them out"
    return None if _shards(techniques) else f"parallelism.shard={dims.shard} is for Z2 and Z3: add one to the method"


def _unsharded_bits(techniques: Techniques) -> str | None:
    if techniques.quantization and _shards(techniques):
        return (
            "QL: FSDP2 partitions parameters by rows, and 4-bit weights have none: set engine=deepspeed, or leave Z2 "
            "and Z3 out"
        )
    return None


def _unkept_dtypes(config: TrainingConfig, techniques: Techniques) -> str | None:
    precision = config.precision
    if precision.moments != precision.master and config.optimizer.moment_dtype is None:
        return (
            f"torch's optimizers keep moments in the dtype that they update: precision.moments={precision.moments} "
            "needs the same precision.master"
        )
    if precision.gradients != precision.parameters and not _shards(techniques):
        return (
            f"torch keeps gradients in the parameters' dtype, {precision.parameters}: set precision.gradients to it, "
            "or take Z2 or Z3"
        )
    if bytes_of(precision.master) < bytes_of(precision.parameters):
        return (
            f"precision.master={precision.master} is narrower than precision.parameters={precision.parameters}: "
            "set it at least as wide"
        )
    return None


def _mixed_precision(config: TrainingConfig) -> dict[str, Any]:
    precision = config.precision
    return {"mixed_precision": {"param_dtype": precision.parameters, "reduce_dtype": precision.gradients}}


def _offload(config: TrainingConfig, techniques: Techniques) -> dict[str, Any]:
    return {"cpu_offload": {"pin_memory": config.hardware.device == "cuda"}} if techniques.offload_optimizer else {}


ENGINE = TorchEngine()
