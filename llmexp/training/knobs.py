"""The limits of keys beside the atoms, by what an engine states; each function returns a skip's reason, or None."""

from __future__ import annotations

from llmexp.inputs.architecture import mixers, model
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.hf_config import config_of
from llmexp.inputs.shape import architecture_name, shape_of
from llmexp.method import Techniques
from llmexp.schema import ModelConfig, SizedModel
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.limits import keys_of, own_code, sized
from llmexp.training.plan.degrees import words_of
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.float8 import MEGATRON
from llmexp.training.plan.seq_len_schedule import KEY

# These are the architectures of llmexp's own files that give sizes; Liger supports all of them.
LIGER_ARCHITECTURES = ("llama", "qwen3", "mixtral")
# With these schedules the last stage runs a pass's backward right after its forward.
ONE_LOSS_IN_FLIGHT = ("1f1b", "interleaved")
# transformers' heads of these are one product, whose logits the loss takes as they are.
PLAIN_HEADS = (
    *("llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "olmo3", "gemma3_text", "mixtral", "qwen3_moe"),
    *("gpt_oss", "glm4_moe", "deepseek_v3", "qwen3_next", "mamba2"),
)


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
    name = architecture_name(config.model)
    why = {
        "Liger's kernels are in Triton, for GPUs: leave it out on hardware.device=cpu": config.hardware.device == "cpu",
        f"it changes models of transformers, not those of engine={engine.name}": not engine.builds_transformers,
        **own_code(config.model),
        f"it supports architecture {', '.join(LIGER_ARCHITECTURES)} here, not model={config.model.name} ({name})": (
            name not in LIGER_ARCHITECTURES or config.model.target is not None
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
    schedule = dims.schedule or ""
    why = {
        f"engine={engine.name} does not change its models: set engine=torch, deepspeed or megatron": not (
            engine.builds_transformers or engine.chunks_loss
        ),
        **own_code(config.model),
        **_changed_logits(config.model),
        f"forward keeps a gradient of the head for every pass that parallelism.schedule={schedule} has in flight, or "
        f"backward is split: set {' or '.join(ONE_LOSS_IN_FLIGHT)}": bool(schedule)
        and schedule not in ONE_LOSS_IN_FLIGHT,
        "Liger computes the loss in chunks itself: leave one of them out": config.kernels.liger,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"kernels.chunked_loss=true: {reason}" if reason else None


def _changed_logits(model: ModelConfig) -> dict[str, bool]:
    """Return the reasons of a model whose logits may change between its head and the loss, and whether each holds."""
    name, fields = architecture_name(model), {} if isinstance(model, SizedModel) else config_of(model) or {}
    return {
        f"it takes architecture {', '.join(PLAIN_HEADS)}, not model={model.name} ({name}), which may change its logits "
        "before the loss": name not in PLAIN_HEADS or model.target is not None,
        f"final_logit_softcapping of model={model.name} changes logits before the loss: leave it out": bool(
            fields.get("final_logit_softcapping")
        ),
    }


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
