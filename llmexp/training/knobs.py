"""The limits of keys beside the atoms, by what an engine states; each function returns a skip's reason, or None."""

from __future__ import annotations

from llmexp.dtypes import SINGLE
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.machine.bf16 import AMPERE
from llmexp.method import Techniques
from llmexp.schema import SizedModel
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.limits import keys_of, sized
from llmexp.training.plan.degrees import words_of
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.seq_len_schedule import KEY

# These are the transformers models that llmexp's own files describe; Liger supports all of them.
LIGER_ARCHITECTURES = ("llama", "qwen3", "mixtral")


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


def window_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say why F, whose kernels see whole sequences, cannot be used with a model that attends within windows."""
    if not techniques.flash_attention or not engine.builds_transformers or isinstance(config.model, SizedModel):
        return None
    try:
        made = architecture_of(config.model)
    except UncountedError:
        return None
    longest = max(config.data.seq_len, *(config.data.seq_len_schedule or (0,)))
    sizes = [layer.mixer.reach.size for layer in made.kinds if layer.mixer.reach and layer.mixer.reach.size]
    if made.attends_all(longest):
        return None
    return (
        f"F: its kernels see whole sequences, and model={config.model.name} attends within {min(sizes)} tokens: set "
        f"data.seq_len={min(sizes)} or less, or leave F out"
    )


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


def degrees_limit(
    config: TrainingConfig, engine: TrainingEngine, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say which degrees, or which kind of context parallelism, the engine does not state, or None."""
    if dims.cp_kind and engine.cp_chunks and dims.cp_kind not in engine.cp_chunks:
        return f"engine={engine.name} runs parallelism.cp_kind={', '.join(engine.cp_chunks)}, not {dims.cp_kind}"
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
