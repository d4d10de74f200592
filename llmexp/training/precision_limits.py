"""The limits of precisions, by what an engine states; each function returns a skip's reason, or None."""

from __future__ import annotations

from llmexp.dtypes import SINGLE
from llmexp.inputs.shape import shape_of
from llmexp.machine.bf16 import AMPERE
from llmexp.method import Techniques
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.float8 import (
    MULTIPLE,
    TORCHAO,
    by_transformer_engine,
    multiplies_fp8,
    mx_limit,
    undivided,
)


def dtype_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say that the engine trains no parameters of this format, or None."""
    precision = config.precision
    if not engine.dtypes or precision.parameters in engine.dtypes:
        return None
    return f"precision={precision.name}: engine={engine.name} trains parameters in {' and '.join(engine.dtypes)} only"


def tf32_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why precision.tf32 would change nothing, or None."""
    if not config.precision.tf32:
        return None
    hardware = config.hardware
    why = {
        "only GPUs multiply in TF32": hardware.device == "cpu",
        f"it acts on fp32 matrices, and parameters are {config.precision.parameters}": config.precision.parameters
        != SINGLE,
        f"hardware={hardware.name} has no TF32, which NVIDIA's GPUs have from Ampere on": hardware.is_amd
        or (hardware.sm or AMPERE) < AMPERE,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"precision.tf32=true: {reason}" if reason else None


def loss_scale_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why parameters in fp16, whose gradients are of a scaled loss, cannot be trained."""
    precision = config.precision
    if not precision.scales_loss:
        return None
    why = {
        f"small updates vanish in it: set precision.master=fp32, not {precision.master}": precision.master != SINGLE,
        "kernels.fused_accumulation has not been tried with steps that are skipped: leave it out": (
            config.kernels.fused_accumulation
        ),
        "kernels.chunked_loss makes gradients before the loss is scaled: leave it out": config.kernels.chunked_loss,
        "kernels.liger makes gradients before the loss is scaled: leave it out": config.kernels.liger,
        "precision.linears has not been tried with it: set precision=fp8": precision.linears is not None,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"precision={precision.name}: parameters are in fp16, and {reason}" if reason else None


def linears_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why precision.linears, which converts the linear layers of a model's decoder layers, cannot be used."""
    wanted, shape, name = config.precision.linears, shape_of(config.model), config.model.name
    if wanted is None:
        return None
    odd = next(undivided(shape, MULTIPLE, dims.tp), None) if shape and multiplies_fp8(config.hardware) else None
    scaling, lacking = config.precision.scaling, "multiplies in precision.parameters alone"
    dense = shape is not None and not shape.num_experts
    instead = ["engine=torch"] * (dense and scaling in TORCHAO)
    if engine.name == "script":
        lacking = "does not change its program, whose own words can ask for fp8"
    if by_transformer_engine(config):
        lacking = "needs transformer_engine, whose layers llmexp plans and does not run"
        instead += ["engine=script engine.options.preset=megatron_lm precision=bf16_mixed for a program that has them"]
    why = {
        f"engine={engine.name} {lacking}: set {', '.join([*instead, 'precision=bf16_mixed'])} or bf16_pure": (
            wanted not in engine.linears
        ),
        f"precision.scaling={scaling} is TransformerEngine's: choices are {', '.join(TORCHAO)}": scaling not in TORCHAO,
        "it converts linear layers that train: leave L, QL, P and Q out": techniques.adapter or techniques.quantization,
        f"it converts linear layers of dense models like Llama, not those of model={name}": not dense,
        f"it multiplies matrices whose sides {MULTIPLE} divides, and {odd} of model={name} is another": odd,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"precision.linears={wanted}: {reason}" if reason else mx_limit(config)


def qat_limit(config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why precision.qat, which rounds the matrices of a model's decoder layers, cannot be used."""
    precision, shape, name = config.precision, shape_of(config.model), config.model.name
    if precision.qat is None:
        return None
    group = precision.qat_group_size
    cut = next((degree for degree, size in dims.degrees.items() if size > 1 and degree != "dp"), None)
    sides = shape.matrices.items() if shape else ()
    odd = next((f"{matrix}, {inputs} wide" for matrix, (inputs, _) in sides if inputs % group), None)
    why = {
        f"it changes models of transformers, not those of engine={engine.name}: set engine=torch or engine=deepspeed": (
            not engine.builds_transformers
        ),
        "it rounds matrices that train: leave L, QL, P and Q out": techniques.adapter or techniques.quantization,
        "it has not been tried with C: leave C out": techniques.compilation,
        f"it has not been tried with parallelism.{cut}: set parallelism.{cut}=1": cut is not None,
        "it has not been tried with precision.linears: set one of them": precision.linears is not None,
        "kernels.fused_accumulation has products of its own: leave one of them out": config.kernels.fused_accumulation,
        "kernels.fused_projections joins the matrices that it rounds: leave one of them out": (
            config.kernels.fused_projections
        ),
        "memory.keep names operators that it has more of: leave one of them out": config.memory.keep is not None,
        f"it rounds linear layers of dense models like Llama, not those of model={name}": shape is None
        or shape.num_experts,
        f"precision.qat_group_size={group} does not divide {odd} of model={name}": odd is not None,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"precision.qat={precision.qat}: {reason}" if reason else None
