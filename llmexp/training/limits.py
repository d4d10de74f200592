"""The limits that several engines share; the functions return the reason of a skip, or None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llmexp.dtypes import format_of
from llmexp.inputs.hf_config import config_of
from llmexp.inputs.shape import architecture_name
from llmexp.machine.bf16 import AMPERE
from llmexp.method import Techniques
from llmexp.schema import HfModel, ModelConfig
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.dims import ParallelDims

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
PACKED = "data.pack=true with data=instructions"


def compiled_limit(techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why C cannot be used with sequences that are cut, for engines that run transformers' models."""
    cut = dims.cutting("sequence")
    if techniques.compilation and cut:
        return f"C compiles decoder layers whole, and with {keys_of(cut)} the ranks communicate inside them"
    return None


def own_code(model: ModelConfig) -> dict[str, bool]:
    """Return the reasons of a folder whose code is its own, and of a hub's name, whose sizes no driver knows."""
    path = model.path if isinstance(model, HfModel) else ""
    is_own = isinstance(model, HfModel) and model.trust_remote_code and bool((config_of(model) or {}).get("auto_map"))
    return {
        f"the config.json of model.path={path} is not here: set a folder": architecture_name(model) == "hf",
        f"auto_map in the config.json of model.path={path} names code of its own": is_own,
    }


def keys_of(degrees: Iterable[str]) -> str:
    """Return the keys of these degrees, in words."""
    return " and ".join(f"parallelism.{name}" for name in degrees)


def sized(degrees: Mapping[str, int]) -> str:
    """Return degrees with their sizes, as in 'tp=2, pp=2'."""
    return ", ".join(f"{name}={size}" for name, size in degrees.items())


def other_schedule(dims: ParallelDims, schedules: Iterable[str]) -> str | None:
    """Say that an engine with pipelines does not have the schedule."""
    if dims.schedule is None or dims.schedule in schedules:
        return None
    return f"its pipeline schedules are {', '.join(schedules)}, not {dims.schedule}"


def quantized_experts(config: TrainingConfig, techniques: Techniques) -> str | None:
    """Say why Q cannot be used, for engines that run transformers' models."""
    if techniques.quantization and architecture_name(config.model) == "mixtral":
        return f"Q replaces linear layers, and the experts of model={config.model.name} are stacks of matrices"
    return None


def adapter_limit(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why L, QL or P cannot be used, for engines that run transformers' models."""
    if techniques.adapter is None:
        return None
    if dims.pp > 1:
        return "L, QL and P change a whole model, and parallelism.pp cuts it into stages"
    if techniques.adapter == "prompt" and (cut := dims.cutting("sequence")):
        return f"P lengthens every sequence, which {keys_of(cut)} has already split"
    if techniques.adapter == "lora" and architecture_name(config.model) == "mamba2":
        return f"L adds to matrices of attention and MLPs, and model={config.model.name} has neither: leave L out"
    beyond = [name for name in config.adapter.targets if name not in ATTENTION]
    if techniques.adapter == "lora" and architecture_name(config.model) == "mixtral" and beyond:
        return (
            f"L adds to linear layers, and {', '.join(beyond)} of model={config.model.name} are stacks of matrices: "
            f"set adapter.targets=[{','.join(ATTENTION)}]"
        )
    return None


def packing_limit(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why records that must not see each other cannot be packed, for engines that run transformers' models."""
    if not config.data.isolates:
        return None
    cut = dims.cutting("sequence", "layers")
    if cut:
        return f"{PACKED} needs whole sequences and whole models, not {sized(cut)}: set data.pack=false"
    if techniques.compilation:
        return f"{PACKED} gives every pass different bounds, and C compiles for one shape: set data.pack=false"
    if techniques.adapter == "prompt":
        return f"{PACKED}: P comes before a sequence, so only its first record would see it: set data.pack=false"
    return None


def flash_without_bf16(config: TrainingConfig, techniques: Techniques) -> str | None:
    """Say why F cannot be used, for engines that run transformers' models."""
    hardware, precision = config.hardware, config.precision
    if not techniques.flash_attention or hardware.device != "cuda":
        return None
    if not format_of(precision.parameters).fused_attention:
        return f"F: the flash kernels of CUDA take bf16 and fp16, not precision={precision.name}"
    if not hardware.is_amd and (hardware.sm or AMPERE) < AMPERE:
        return f"F: the flash kernels of CUDA run from Ampere on, not on hardware={hardware.name}"
    return None
