"""The limits of optimizers with each way to hold training state; the functions return a skip's reason, or None."""

from __future__ import annotations

from llmexp.inputs.shape import architecture_name, shape_of
from llmexp.method import Techniques
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.dims import ParallelDims

BITSANDBYTES = "bitsandbytes"


def misdeclared_moments(config: TrainingConfig) -> str | None:
    """Say that the optimizer keeps its moments in another floating dtype than precision.moments."""
    own, said = config.optimizer.moment_dtype, config.precision.moments
    if own in (None, "int8", said) or not config.optimizer.moments:
        return None
    return (
        f"optimizer={config.optimizer.name} keeps its moments in {own}, not precision.moments={said}: "
        f"set precision.moments={own}"
    )


def partition_limit(config: TrainingConfig, techniques: Techniques) -> str | None:
    """Say why an optimizer cannot be used with ZeRO, whose partitions are flat pieces of all parameters in a row."""
    chosen = config.optimizer
    if chosen.preconditioned_side:
        return f"optimizer={chosen.name} has not been tried with engine=deepspeed: set engine=torch"
    if chosen.fused_backward:
        return (
            f"optimizer={chosen.name} updates in backward, which engine=deepspeed orders differently: set engine=torch"
        )
    if chosen.rest is not None and techniques.zero_stage:
        return (
            f"Z{techniques.zero_stage}: optimizer={chosen.name} updates whole matrices, and DeepSpeed's partitions are "
            "flat: leave Z out, or set engine=torch with Z1, Z2 or Z3"
        )
    if chosen.factored and techniques.zero_stage:
        return (
            f"Z{techniques.zero_stage}: optimizer={chosen.name} keeps rows and columns of matrices, "
            "and DeepSpeed's partitions are flat: leave Z out, or set engine=torch with Z1"
        )
    return _matrix_limit(config, techniques)


def sharding_limit(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why an optimizer cannot be used with torch's wrappers."""
    chosen = config.optimizer
    if chosen.package == BITSANDBYTES and techniques.zero_stage >= 2:
        return (
            f"Z{techniques.zero_stage}: the kernels of optimizer={chosen.name} take no partitioned tensors of FSDP2: "
            "set engine=deepspeed, or take Z1"
        )
    if chosen.factored and not chosen.fused_backward and techniques.zero_stage >= 2:
        return (
            f"Z{techniques.zero_stage}: optimizer={chosen.name} needs means over rows and columns, which FSDP2's "
            "ranks hold in parts: take Z1"
        )
    if chosen.rest is not None and dims.pp > 1:
        return f"optimizer={chosen.name} has not been tried on the stages of a pipeline: set parallelism.pp=1"
    unfused = _unfused(config, techniques, dims) if chosen.fused_backward else None
    return _matrix_limit(config, techniques) or _preconditioner_limit(config, techniques, dims) or unfused


def _matrix_limit(config: TrainingConfig, techniques: Techniques) -> str | None:
    """Say why an optimizer of the layers' matrices cannot be used: offload, or too few matrices that train."""
    name, model, shape = config.optimizer.name, config.model, shape_of(config.model)
    if config.optimizer.rest is None:
        return None
    frozen = "P" * (techniques.adapter == "prompt") or "Q" * bool(techniques.quantization and not techniques.adapter)
    why = {
        "O: the products of its update would run on the host: leave O out": techniques.offload_optimizer,
        f"{frozen} trains no matrix of a decoder layer: set optimizer=adamw": bool(frozen),
        f"it takes no stacks of matrices, which the experts of model={model.name} are: set optimizer=adamw": (
            shape is not None and shape.num_experts
        ),
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"optimizer={name}: {reason}" if reason else None


def _preconditioner_limit(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why an optimizer that keeps squares for the sides of matrices cannot be used."""
    chosen, model, shape = config.optimizer, config.model, shape_of(config.model)
    if chosen.preconditioned_side is None:
        return None
    uncounted = next((key for key in ("merge_dims", "precondition_1d") if chosen.arguments.get(key)), None)
    why = {
        f"Z{techniques.zero_stage}: its squares belong to whole matrices, and some ranks would hold far more of them: "
        "leave Z out": bool(techniques.zero_stage),
        "it has not been tried on the stages of a pipeline: set parallelism.pp=1": dims.pp > 1,
        f"it would take the experts of model={model.name}, which are stacks of matrices, for one tensor: set "
        "optimizer=adamw": shape is not None and bool(shape.num_experts),
        f"plans do not count what it keeps with optimizer.options.{uncounted}: leave that out": uncounted is not None,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"optimizer={chosen.name}: {reason}" if reason else None


def _unfused(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    name, precision = config.optimizer.name, config.precision
    if techniques.zero_stage:
        return f"Z{techniques.zero_stage}: optimizer={name} updates whole parameters in backward: leave Z out"
    if dims.pp > 1:
        return (
            f"optimizer={name} updates in backward, and a pipeline's passes need the same parameters: "
            "set parallelism.pp=1"
        )
    if config.batch.accumulation > 1:
        return (
            f"optimizer={name} updates in every backward pass: set batch.accumulation=1, and batch.micro for the batch"
        )
    if precision.master != precision.parameters:
        return (
            f"optimizer={name} updates the parameters themselves, without a copy in {precision.master}: "
            "set precision=bf16_pure or precision=fp32"
        )
    if config.optimizer.factored and architecture_name(config.model) == "mixtral":
        return (
            f"optimizer={name} keeps rows and columns of matrices, and the experts of model={config.model.name} are "
            "stacks of them"
        )
    return None
