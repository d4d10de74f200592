"""The DeepSpeed engine has a native configuration for every combination of ZeRO, offload and precision."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from llmexp.dtypes import HALF, SCALED, SINGLE, bytes_of
from llmexp.inputs.shape import shape_of
from llmexp.launch.commands import module, ranks_of
from llmexp.launchers.attention.sequence_limits import unshared_sequences
from llmexp.launchers.deepspeed.disk import (
    SUB_GROUP_ELEMENTS,
    disk_limit,
    lacking_disk,
    offload_optimizer,
    on_disk,
    swap_folder,
)
from llmexp.launchers.deepspeed.options import deepspeed_options
from llmexp.method import Techniques
from llmexp.record.plan import Command, RunPlan
from llmexp.schema import CpKind
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import FLASH_PACKAGES, TrainingEngine
from llmexp.training.limits import (
    adapter_limit,
    compiled_limit,
    flash_without_bf16,
    packing_limit,
    quantized_experts,
)
from llmexp.training.optimizer_limits import misdeclared_moments, partition_limit
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.memory import StatePlacement, Storage
from llmexp.training.plan.trained import Trained

WORKER = "llmexp.launchers.deepspeed.worker"
DEFAULT_BUCKET_ELEMENTS = 500_000_000
# ZeRO-3 updates a rank's partition in pieces of this size.
DEFAULT_SUB_GROUP_ELEMENTS = 1_000_000_000
# ZeRO-3 keeps so many gathered parameters for their next use.
DEFAULT_LIVE_ELEMENTS = 1_000_000_000
# DeepSpeed's periodic report has no switch, only an interval.
NEVER = 2**31 - 1


class DeepSpeedEngine(TrainingEngine):
    """An engine for data parallelism with ZeRO 0 to 3 and context parallelism by Ulysses."""

    name = "deepspeed"
    degrees = ("dp", "cp")
    launchers = ("spawn", "torchrun", "deepspeed", "fork")
    cp_chunks: ClassVar[Mapping[CpKind, int]] = {"ulysses": 1}
    dtypes = (SINGLE, HALF, SCALED)
    keeps_weights = builds_transformers = grows_sequences = traces_memory = sets_updates = True
    offloads_activations_with = 2
    keeps_states_on_disk = True
    modules = ("torch", "deepspeed", "transformers", "accelerate")
    distributions = (
        "deepspeed",
        "torch",
        "transformers",
        "peft",
        "bitsandbytes",
        *FLASH_PACKAGES,
        "liger-kernel",
        "triton",
    )

    def unsupported(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Say what DeepSpeed's offload and launcher cannot do, and what does not go together here."""
        if config.engine.launcher == "deepspeed" and config.hardware.nodes > 1:
            return "engine.launcher=deepspeed starts ranks on one node only: set engine.launcher=spawn"
        if (
            techniques.offload_optimizer
            and config.precision.moments == "bf16"
            and not _uses_own_optimizer(config, techniques)
        ):
            return f"O with precision={config.precision.name} needs DeepSpeed's CPUAdam: set optimizer=adamw_cpuadam"
        if config.precision.scales_loss and not techniques.zero_stage:
            return (
                f"precision={config.precision.name} without Z: DeepSpeed (0.19.8) divides gradients there by a factor "
                "that losses were not multiplied by: take Z1, Z2 or Z3, or set engine=torch"
            )
        limits = (
            disk_limit(config, techniques, dims),
            compiled_limit(techniques, dims),
            _sequence_limit(config, dims),
            packing_limit(config, techniques, dims),
            adapter_limit(config, techniques, dims),
            flash_without_bf16(config, techniques),
            quantized_experts(config, techniques),
        )
        updates = partition_limit(config, techniques) or misdeclared_moments(config)
        return next(filter(None, limits), None) or updates

    def recomputes_whole(self, techniques: Techniques) -> bool:
        """Tell whether recomputed layers run to their end, which those of Z3 do unless they are compiled.

        Z3's own linear function saves its tensors only after it has computed (0.19.8, zero/linear.py).
        """
        return techniques.recomputation and techniques.zero_stage == 3 and not techniques.compilation

    def keeps_master_copy(self, config: TrainingConfig, techniques: Techniques) -> bool:
        """Tell whether the optimizer updates a copy: ZeRO's partitions are copies, even in the parameters' dtype."""
        return techniques.zero_stage > 0 or super().keeps_master_copy(config, techniques)

    def storage(self, config: TrainingConfig, techniques: Techniques) -> Storage:
        """Describe ZeRO's state; gradients have the parameters' dtype and are copied to the master's for the update."""
        made = super().storage(config, techniques)
        files = on_disk(config, ParallelDims.of(config, self.schedules, self.cp_chunks).same_parameters)
        reduced = (
            made.gradients
            if techniques.offload_optimizer and not files
            else replace(
                made.gradients,
                bytes_per_parameter=made.parameters.bytes_per_parameter,
                partitioned=made.gradients.partitioned or _partitions_as_they_come(config, techniques),
            )
        )
        buffers, update_buffers = _buffers(config, techniques)
        return replace(
            made,
            gradients=reduced,
            update=_update(config, techniques),
            brief=_brief(config, techniques),
            # ZeRO-3 allocates memory for its share at the start.
            gradients_stay=made.gradients_stay or techniques.zero_stage == 3,
            buffers=buffers,
            update_buffers=update_buffers,
            on_disk=files,
        )

    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """Return the dictionary that deepspeed.initialize takes."""
        native: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": config.batch.samples,
            "gradient_accumulation_steps": config.batch.accumulation,
            "steps_per_print": NEVER,
            # The default clips to a norm of 1 (0.19), which no other engine does by default.
            "gradient_clipping": config.optimizer.clip_norm or 0.0,
            # Without a bf16 section DeepSpeed would reduce bf16 gradients as fp32: twice the bytes.
            "communication_data_type": config.precision.gradients,
            # This timer waits for the device twice a step, for a report that is never printed.
            "timers": {"throughput": {"enabled": False}},
            "zero_optimization": _zero(config, techniques),
        }
        if dims.cp > 1:
            # The default reduces in fp32, whatever the dtype of the gradients.
            native |= {
                "sequence_parallel_size": dims.cp,
                "seq_parallel_communication_data_type": config.precision.gradients,
            }
        if _uses_bf16_section(config, techniques):
            native["bf16"] = _bf16(config)
        if config.precision.scales_loss:
            native["fp16"] = _fp16(config)
        if _uses_own_optimizer(config, techniques):
            native["optimizer"] = _optimizer(config)
        else:
            # DeepSpeed is given torch's AdamW; these two keys let ZeRO and its offload accept it.
            native |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
        return native

    def known_options(self, config: TrainingConfig, native: Mapping[str, Any]) -> Collection[str] | None:
        """Return the options of the installed DeepSpeed; DeepSpeed itself checks the keys below them strictly."""
        return deepspeed_options() or None

    def unbuildable(self, plan: RunPlan) -> str | None:
        """Say what this machine lacks to build an op that the run needs, or for states on a disk."""
        from llmexp.launchers.deepspeed.build import unbuildable

        return lacking_disk(plan) or unbuildable(plan)

    def prepare(self, plan: RunPlan) -> dict[str, str]:
        """Build the op of DeepSpeed's own optimizer, or of its files."""
        from llmexp.launchers.deepspeed.build import prepare_ops

        return prepare_ops(plan)

    def clean_up(self, plan: RunPlan, folder: Path) -> None:
        """Remove the files of states that killed ranks have left."""
        if files := swap_folder(plan, folder):
            shutil.rmtree(files, ignore_errors=True)

    def command(self, config: TrainingConfig, dims: ParallelDims) -> Command:
        """Return the command that starts one rank per device, by DeepSpeed's own launcher or by another one."""
        meet = ["--master_addr", "{address}", "--master_port", "{port}"]
        own = [
            "deepspeed.launcher.runner",
            "--num_gpus",
            str(dims.world_size),
            *meet,
            "--no_local_rank",
            "--module",
            WORKER,
            "{folder}",
        ]
        command = (
            module(config, own) if config.engine.launcher == "deepspeed" else ranks_of(config, dims.world_size, WORKER)
        )
        accelerator = {"DS_ACCELERATOR": "cpu"} if config.hardware.device == "cpu" else {}
        return command.model_copy(update={"env": accelerator | command.env})


def _sequence_limit(config: TrainingConfig, dims: ParallelDims) -> str | None:
    """Say what of the model ranks that share its sequences would train otherwise."""
    why = unshared_sequences(config.model, config.data.seq_len) if dims.cp > 1 else {}
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"engine=deepspeed with parallelism.cp={dims.cp}: {reason}" if reason else None


def _zero(config: TrainingConfig, techniques: Techniques) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": techniques.zero_stage}
    shape = shape_of(config.model)
    if techniques.zero_stage and shape:
        # Buckets larger than all gradients only waste memory; DeepSpeed's own default is the upper limit.
        bucket = min(DEFAULT_BUCKET_ELEMENTS, Trained.of(shape, techniques, config.adapter).trainable)
        zero |= {"reduce_bucket_size": bucket, "allgather_bucket_size": bucket}
    if techniques.zero_stage == 3 and shape:
        # Norms stay whole and matrices are partitioned at every model size: transformers' rule for "auto".
        zero["stage3_param_persistence_threshold"] = 10 * shape.hidden_size
    pinned = config.hardware.device == "cuda"
    if techniques.offload_optimizer:
        zero["offload_optimizer"] = offload_optimizer(config)
    if config.memory.optimizer_folder is not None:
        zero["sub_group_size"] = SUB_GROUP_ELEMENTS
    if techniques.offload_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": pinned}
    return zero


def _buffers(config: TrainingConfig, techniques: Techniques) -> tuple[float, float]:
    """Return the bytes of what ZeRO fills while it computes, and of what of it is there in the update.

    These are buckets, two where they are reduced in the background, and what Z3 has gathered. It copies a full bucket
    to reduce it, and keeps the parameters outside of layers. The defaults are those of DeepSpeed 0.19.8
    (runtime/zero/config.py). Stage 0 fills its buckets after backward.
    """
    stage, shape, size = techniques.zero_stage, shape_of(config.model), bytes_of(config.precision.parameters)
    if stage == 0 or shape is None:
        return 0.0, 0.0
    zero = _zero(config, techniques) | config.engine.options.get("zero_optimization", {})
    buckets = zero["reduce_bucket_size"] * (2 if zero.get("overlap_comm", False) or stage == 3 else 1)
    # The first bounds what is gathered ahead, the second what is kept for its next use.
    bounds = (zero.get(f"stage3_max_{what}", DEFAULT_LIVE_ELEMENTS) for what in ("live_parameters", "reuse_distance"))
    live = min(max(bounds), shape.parameters) if stage == 3 else 0
    kept = buckets + min(live, shape.parameters_outside_layers) if stage == 3 else 0
    return float(size * (buckets + live)), float(size * kept)


def _update(config: TrainingConfig, techniques: Techniques) -> tuple[StatePlacement, ...]:
    """Return all gradients that exist in the update; ZeRO-3 keeps its buffer of reduced ones, with O on the host."""
    size, precision, stage, on_host = (
        bytes_of,
        config.precision,
        techniques.zero_stage,
        techniques.offload_optimizer,
    )
    if stage == 0 and precision.master == precision.parameters:
        return ()
    copies = StatePlacement(size(precision.master), stage > 0, on_host)
    if stage == 0:
        # DeepSpeed's wrapper for FusedAdam drops the gradients that it has copied; its wrapper for others does not.
        return (
            (copies,)
            if _uses_own_optimizer(config, techniques)
            else (StatePlacement(size(precision.parameters)), copies)
        )
    if stage < 3:
        return (copies,)
    if not on_host:
        copies = replace(
            copies,
            elements=config.engine.options.get("zero_optimization", {}).get(
                "sub_group_size", DEFAULT_SUB_GROUP_ELEMENTS
            ),
        )
    reduced = StatePlacement(size(precision.parameters), True, on_host)
    return (reduced,) if config.memory.optimizer_folder else (reduced, copies)


def _brief(config: TrainingConfig, techniques: Techniques) -> tuple[tuple[StatePlacement, ...], ...]:
    """Return the gradients that ZeRO-1 and 2 hold for a moment (0.19.8, stage_1_and_2.py); without O they are here.

    The update flattens a rank's share before it is copied to the master's dtype. Stage 1 mostly takes the share at the
    end of backward, out of whole gradients.
    """
    stage, precision = techniques.zero_stage, config.precision
    if stage not in (1, 2) or techniques.offload_optimizer:
        return ()
    whole = StatePlacement(bytes_of(precision.parameters))
    share = replace(whole, partitioned=True)
    copies = StatePlacement(bytes_of(precision.master), partitioned=True)
    flattened = (share, share, copies) if precision.master != precision.parameters else (share, share)
    at_the_end = stage == 1 and not _partitions_as_they_come(config, techniques)
    return ((whole, share), flattened) if at_the_end else (flattened,)


def _partitions_as_they_come(config: TrainingConfig, techniques: Techniques) -> bool:
    """Tell whether stage 1 holds no whole gradients: it reduces in the background, in the only pass of a step."""
    in_background = config.engine.options.get("zero_optimization", {}).get("overlap_comm", False)
    return techniques.zero_stage == 1 and bool(in_background) and config.batch.accumulation == 1


def _uses_bf16_section(config: TrainingConfig, techniques: Techniques) -> bool:
    # At stage 0 DeepSpeed refuses bf16 states in its bf16 section; without that section, a bf16 model trains in bf16.
    return config.precision.parameters == "bf16" and (config.precision.master == "fp32" or techniques.zero_stage > 0)


def _bf16(config: TrainingConfig) -> dict[str, Any]:
    pure = config.precision.master == "bf16"
    return {"enabled": True} | ({"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True} if pure else {})


def _fp16(config: TrainingConfig) -> dict[str, Any]:
    """Return the section of fp16; its scale falls after every overflow, as that of other engines does."""
    return {
        "enabled": True,
        "initial_scale_power": config.precision.initial_scale_power,
        "loss_scale_window": config.precision.scale_window,
        "hysteresis": 1,
    }


def _uses_own_optimizer(config: TrainingConfig, techniques: Techniques) -> bool:
    chosen = config.optimizer.implementation
    return chosen == "deepspeed" or (chosen == "deepspeed_with_offload" and techniques.offload_optimizer)


def _optimizer(config: TrainingConfig) -> dict[str, Any]:
    return {"type": "AdamW", "params": config.optimizer.arguments}


ENGINE = DeepSpeedEngine()
