"""Limits of the section `memory`: why what a rank keeps, or where, cannot be as configured."""

from __future__ import annotations

from llmexp.inputs.shape import architecture_name, shape_of
from llmexp.method import Techniques
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.limits import keys_of, own_code
from llmexp.training.plan.dims import ParallelDims


def activation_offload_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why memory.activation_offload cannot be used.

    It needs ranks that hold whole parameters and run one forward pass after the other.
    """
    if not config.memory.activation_offload:
        return None
    whole, cut = engine.offloads_activations_with, keys_of(dims.cutting("sequence"))
    why = {
        f"engine={engine.name} keeps its activations itself: set engine=deepspeed or engine=torch": whole is None,
        "pipeline stages keep what they send: set parallelism.pp=1": dims.pp > 1,
        f"it has not been tried with {cut}: set {cut}=1": bool(cut),
        "C itself decides what a layer keeps: leave C out": techniques.compilation,
        (
            f"Z{techniques.zero_stage} gathers parameters again in every layer, and they would be moved too: use "
            f"Z{whole}, or leave Z out"
        ): techniques.zero_stage > (whole or 0),
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"memory.activation_offload=true: {reason}" if reason else None


def optimizer_folder_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say that the engine keeps no states in files, or None."""
    if config.memory.optimizer_folder is None or engine.keeps_states_on_disk:
        return None
    return f"memory.optimizer_folder: engine={engine.name} keeps no states on a disk: set engine=deepspeed"


def keep_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why memory.keep, which chooses among the operators that autograd runs in a layer, cannot be used."""
    if not config.memory.keep:
        return None
    cut, dense = keys_of(dims.cutting("layers", "sequence", "matrices")), ("llama", "qwen3")
    name = architecture_name(config.model)
    why = {
        "it keeps results that R would compute again, and those of F's kernel: add F+R to the method": not (
            techniques.recomputation and techniques.flash_attention
        ),
        f"it changes models of transformers, not those of engine={engine.name}: set engine=torch or engine=deepspeed": (
            not engine.builds_transformers
        ),
        **own_code(config.model),
        f"it takes architecture {', '.join(dense)} without biases, not model={config.model.name} ({name})": (
            name not in dense or shape_of(config.model) is None
        ),
        f"it has not been tried with {cut}: set {cut}=1": bool(cut),
        "operators are not seen in what C compiles: leave C out": techniques.compilation,
        "4-bit matrices multiply by operators of their own: leave Q out": techniques.quantization is not None,
        "products in fp8 have operators of their own: set precision=bf16": config.precision.linears is not None,
        f"the kernel of kernels.flash={config.kernels.flash} is no operator of torch: leave it out": (
            config.kernels.flash not in ("auto", "cudnn")
        ),
        "Liger's kernels are no operators of torch: leave kernels.liger out": config.kernels.liger,
        "it has not been tried with memory.activation_offload or kernels.fused_accumulation: leave them out": (
            config.memory.activation_offload or config.kernels.fused_accumulation
        ),
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"memory.keep={config.memory.keep}: {reason}" if reason else None


def recompute_layers_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why memory.recompute_layers, which chooses among the layers of R, cannot be used."""
    first, shape, stages = config.memory.recompute_layers, shape_of(config.model), dims.pp * dims.virtual_stages
    if first is None:
        return None
    layers = shape.num_layers if shape else first
    why = {
        "it chooses among the layers that R computes again: add R to the method": not techniques.recomputation,
        f"the layers of model={config.model.name} are not all alike to a plan": shape is None,
        f"model={config.model.name} has {layers} layers": first > layers,
        f"engine={engine.name} has not been tried with it and parallelism.pp: set parallelism.pp=1": (
            dims.pp > 1 and not engine.recomputes_in_stages
        ),
        f"each of {stages} stages computes as many layers again: set a multiple of {stages}": bool(first % stages),
        "it has not been tried with memory.activation_offload: leave that out": config.memory.activation_offload,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"memory.recompute_layers={first}: {reason}" if reason else None
