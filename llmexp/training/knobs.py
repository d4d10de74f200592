"""The limits of keys beside the atoms, by what an engine states; each function returns a skip's reason, or None."""

from __future__ import annotations

from llmexp.dtypes import SINGLE
from llmexp.inputs.architecture import mixers, model
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.shape import shape_of
from llmexp.machine.bf16 import AMPERE
from llmexp.method import Techniques
from llmexp.schema import SizedModel
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.limits import keys_of, sized
from llmexp.training.plan.degrees import words_of
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.float8 import (
    MEGATRON,
    MULTIPLE,
    TORCHAO,
    by_transformer_engine,
    multiplies_fp8,
    mx_limit,
    undivided,
)
from llmexp.training.plan.seq_len_schedule import KEY

# These are the transformers models that llmexp's own files describe; Liger supports all of them.
LIGER_ARCHITECTURES = ("llama", "qwen3", "mixtral")


def flash_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why kernels.flash, another kernel of F for transformers models, cannot be used."""
    kernel, cut = config.kernels.flash, keys_of(dims.cutting("sequence"))
    if kernel == "auto":
        return None
    why = {
        "it is for GPUs: leave it out on hardware.device=cpu": config.hardware.device == "cpu",
        "it is a kernel of F: add F to the method": not techniques.flash_attention,
        f"it changes models of transformers, not those of engine={engine.name}": not engine.builds_transformers,
        "packed records do not see each other, which it cannot do here: set data.pack=false": kernel == "cudnn"
        and config.data.isolates,
        f"{cut} uses its own attention: set {cut}=1": bool(cut),
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"kernels.flash={kernel}: {reason}" if reason else None


def update_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why learning rates cannot change from step to step, or gradients cannot be clipped."""
    chosen = config.optimizer
    asked = {
        f"optimizer.schedule={chosen.schedule}": chosen.schedule != "constant",
        f"optimizer.warmup_steps={chosen.warmup_steps}": chosen.warmup_steps,
        f"optimizer.clip_norm={chosen.clip_norm}": chosen.clip_norm,
    }
    key = next((key for key, is_asked in asked.items() if is_asked), "")
    if key and not engine.sets_updates:
        return f"{key}: engine={engine.name} sets neither learning rates nor clips gradients: leave it out"
    if chosen.clip_norm and chosen.fused_backward:
        return (
            f"optimizer.clip_norm={chosen.clip_norm}: optimizer={chosen.name} uses each gradient in backward, before "
            "the norm of all is known: leave it out, or set optimizer=adamw"
        )
    return None


def window_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why F cannot be used with a model that attends within windows, or whose heads have sinks.

    Its kernels see whole sequences and no logits besides; transformers refuses sdpa for gpt-oss.
    """
    if not techniques.flash_attention or not engine.builds_transformers or isinstance(config.model, SizedModel):
        return None
    try:
        made = architecture_of(config.model)
    except UncountedError:
        return None
    if any(isinstance(layer.mixer, mixers.Attention) and layer.mixer.sinks for layer in made.kinds):
        return f"F: its kernels have no attention sinks, and model={config.model.name} does: leave F out"
    if config.hardware.device == "cpu" and any(map(_latent_values_differ, made.kinds)):
        return (
            f"F: on a CPU torch's kernel takes values only as wide as keys, not model={config.model.name}: leave F out"
        )
    if not any(isinstance(layer.mixer, mixers.Attention | mixers.LatentAttention) for layer in made.kinds):
        return f"F: model={config.model.name} has no attention: leave F out"
    longest = max(config.data.seq_len, *(config.data.seq_len_schedule or (0,)))
    sizes = [layer.mixer.reach.size for layer in made.kinds if layer.mixer.reach and layer.mixer.reach.size]
    if made.attends_all(longest):
        return None
    return (
        f"F: its kernels see whole sequences, and model={config.model.name} attends within {min(sizes)} tokens: set "
        f"data.seq_len={min(sizes)} or less, or leave F out"
    )


def _latent_values_differ(layer: model.Layer) -> bool:
    mixer = layer.mixer
    return isinstance(mixer, mixers.LatentAttention) and mixer.value_dim != mixer.plain_dim + mixer.rotary_dim


def liger_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why kernels.liger, which puts Triton's kernels into a transformers model, cannot be used."""
    if not config.kernels.liger:
        return None
    why = {
        "Liger's kernels are in Triton, for GPUs: leave it out on hardware.device=cpu": config.hardware.device == "cpu",
        f"it changes models of transformers, not those of engine={engine.name}": not engine.builds_transformers,
        f"it supports architecture {', '.join(LIGER_ARCHITECTURES)} here, not model={config.model.name}": (
            config.model.architecture not in LIGER_ARCHITECTURES or config.model.target is not None
        ),
        "it changes a whole model, which parallelism.pp or parallelism.cp cuts": bool(
            dims.cutting("layers", "sequence")
        ),
        "C generates its own kernels: leave one of them out": techniques.compilation,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"kernels.liger=true: {reason}" if reason else None


def chunked_loss_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why kernels.chunked_loss, which changes the head and the loss of a transformers model, cannot be used."""
    if not config.kernels.chunked_loss:
        return None
    cut = next((name for name in ("tp", "pp", "cp") if dims.degrees.get(name, 1) > 1), "")
    why = {
        f"it changes models of transformers, not those of engine={engine.name}: set engine=torch or engine=deepspeed": (
            not engine.builds_transformers
        ),
        f"it takes architecture {', '.join(LIGER_ARCHITECTURES)}, not model={config.model.name}, which may change its "
        "logits before the loss": config.model.architecture not in LIGER_ARCHITECTURES
        or config.model.target is not None,
        f"it needs the whole head and whole sequences on a rank: set parallelism.{cut}=1": bool(cut),
        "Liger computes the loss in chunks itself: leave one of them out": config.kernels.liger,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"kernels.chunked_loss=true: {reason}" if reason else None


def fused_projections_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why kernels.fused_projections, which makes one matrix of several of a layer, cannot be used."""
    if not config.kernels.fused_projections:
        return None
    name, optimizer = config.model.name, config.optimizer
    why = {
        "engine=megatron always does it: leave it out": engine.name == MEGATRON,
        f"it changes models of transformers, not those of engine={engine.name}: set engine=torch or engine=deepspeed": (
            not engine.builds_transformers
        ),
        f"it joins the matrices of models like Llama, not those of model={name}": shape_of(config.model) is None,
        "L and QL add to each matrix, and Q and P train none: leave it out": bool(
            techniques.adapter or techniques.quantization
        ),
        "parallelism.tp cuts each matrix by itself: set parallelism.tp=1": dims.tp > 1,
        f"optimizer={optimizer.name} updates a matrix as a whole, and would update another one: set optimizer=adamw": (
            optimizer.rest is not None or optimizer.factored or optimizer.preconditioned_side is not None
        ),
        "Liger's kernels take gate and up apart: leave one of them out": config.kernels.liger,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"kernels.fused_projections=true: {reason}" if reason else None


def fused_accumulation_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why kernels.fused_accumulation, which takes gradients out of autograd's hands, cannot be used."""
    if not config.kernels.fused_accumulation:
        return None
    cut, stage = sized({name: size for name, size in dims.degrees.items() if size > 1}), techniques.zero_stage
    why = {
        f"engine={engine.name} adds gradients itself: set engine=torch": not engine.fuses_accumulation,
        "one pass a step adds nothing: set batch.accumulation=2 or more, or leave it out": (
            config.batch.accumulation == 1
        ),
        f"Z{stage} partitions the gradients of every pass: use Z1, or leave Z out": stage >= 2,
        f"several ranks reduce gradients that autograd gives them, with {cut}: set all degrees to 1": bool(cut),
        "Q, L, QL and P do not train the layers' matrices: leave it out": bool(
            techniques.adapter or techniques.quantization
        ),
        "Liger's loss makes the gradient of the head itself: leave one of them out": config.kernels.liger,
        "torchao's fp8 layers make their gradients themselves: leave one of them out": bool(config.precision.linears),
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"kernels.fused_accumulation=true: {reason}" if reason else None


def degrees_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say which degrees, or which kind of context parallelism, the engine does not state, or None."""
    if dims.cp_kind and engine.cp_chunks and dims.cp_kind not in engine.cp_chunks:
        return f"engine={engine.name} runs parallelism.cp_kind={', '.join(engine.cp_chunks)}, not {dims.cp_kind}"
    for name, other in {"ends_as_layers": "megatron", "etp": "megatron", "shard": "torch"}.items():
        if getattr(dims, name) is not None and name not in engine.cuts:
            return f"engine={engine.name} does not take parallelism.{name}: leave it out, or set engine={other}"
    beyond = sized({name: size for name, size in dims.degrees.items() if size > 1 and name not in engine.degrees})
    return f"engine={engine.name} runs {words_of(engine.degrees)} only, not {beyond}" if beyond else None


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
    odd = next(undivided(shape, MULTIPLE), None) if shape and multiplies_fp8(config.hardware) else None
    scaling, lacking = config.precision.scaling, "multiplies in precision.parameters alone"
    if by_transformer_engine(config):
        lacking = "needs transformer_engine, whose layers llmexp plans and does not run"
    dense = shape is not None and not shape.num_experts
    other = "engine=torch, or " * (dense and scaling in TORCHAO)
    why = {
        f"engine={engine.name} {lacking}: set {other}precision=bf16_mixed or bf16_pure": wanted not in engine.linears,
        f"precision.scaling={scaling} is TransformerEngine's: choices are {', '.join(TORCHAO)}": scaling not in TORCHAO,
        "it converts linear layers that train: leave L, QL, P and Q out": techniques.adapter or techniques.quantization,
        "it has not been tried with pipeline stages: set parallelism.pp=1": dims.pp > 1,
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


def schedule_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why sequences cannot grow in this run, as the reason of a skip; return None where they can or need not."""
    if not config.data.seq_len_schedule:
        return None
    if not engine.grows_sequences:
        return f"{KEY}: engine={engine.name} takes sequences of one length"
    if techniques.compilation:
        return f"{KEY}: C compiles for one length, and would recompile inside the measured window"
    cut = sized(dims.cutting("layers", "sequence"))
    return f"{KEY}: {cut} is set up for sequences of one length" if cut else None
