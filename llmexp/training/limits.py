"""The limits that several engines share; the functions return the reason of a skip, or None."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llmexp.dtypes import format_of
from llmexp.method import Techniques
from llmexp.schema import CpKind
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.dims import ParallelDims

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
PACKED = "data.pack=true with data=instructions"


def beyond_data_parallelism(config: TrainingConfig, dims: ParallelDims) -> str | None:
    """Name the degrees besides dp, for engines that support only dp."""
    wide = wider(dims, ("tp", "pp", "cp", "ep"))
    return f"engine={config.engine.name} runs data parallelism only, not {', '.join(wide)}" if wide else None


def beyond_context_parallelism(
    config: TrainingConfig, techniques: Techniques, dims: ParallelDims, kinds: Collection[CpKind]
) -> str | None:
    """Say what is beyond engines that support dp, and cp of these kinds, with a model of transformers."""
    if dims.cp_kind and dims.cp_kind not in kinds:
        return f"engine={config.engine.name} runs parallelism.cp_kind={', '.join(kinds)}, not {dims.cp_kind}"
    if dims.cp > 1 and techniques.compilation:
        return "C compiles decoder layers whole, and with parallelism.cp the ranks talk inside them"
    wide = wider(dims, ("tp", "pp", "ep"))
    return (
        f"engine={config.engine.name} runs data and context parallelism only, not {', '.join(wide)}" if wide else None
    )


def wider(dims: ParallelDims, names: Iterable[str]) -> list[str]:
    """Return those of the named degrees that are not 1, with their sizes."""
    return [f"{name}={getattr(dims, name)}" for name in names if getattr(dims, name) > 1]


def other_schedule(dims: ParallelDims, schedules: Iterable[str]) -> str | None:
    """Say that an engine with pipelines does not have the schedule."""
    if dims.schedule is None or dims.schedule in schedules:
        return None
    return f"its pipeline schedules are {', '.join(schedules)}, not {dims.schedule}"


def quantized_experts(config: TrainingConfig, techniques: Techniques) -> str | None:
    """Say why Q cannot be used, for engines that run transformers' models."""
    if techniques.quantization and config.model.architecture == "mixtral":
        return f"Q replaces linear layers, and the experts of model={config.model.name} are stacks of matrices"
    return None


def adapter_limit(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why L, QL or P cannot be used, for engines that run transformers' models."""
    if techniques.adapter is None:
        return None
    if dims.pp > 1:
        return "L, QL and P change a whole model, and parallelism.pp cuts it into stages"
    if techniques.adapter == "prompt" and dims.cp > 1:
        return "P lengthens every sequence, and parallelism.cp has cut it before"
    beyond = [name for name in config.adapter.targets if name not in ATTENTION]
    if techniques.adapter == "lora" and config.model.architecture == "mixtral" and beyond:
        return (
            f"L adds to linear layers, and {', '.join(beyond)} of model={config.model.name} are stacks of matrices: "
            f"set adapter.targets=[{','.join(ATTENTION)}]"
        )
    return None


def packing_limit(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why records that must not see each other cannot be packed, for engines that run transformers' models."""
    if not config.data.isolates:
        return None
    cut = wider(dims, ("cp", "pp"))
    if cut:
        return f"{PACKED} is of whole sequences and whole models, not of {', '.join(cut)}: set data.pack=false"
    if techniques.compilation:
        return f"{PACKED} gives every pass other bounds, and C compiles for one shape: set data.pack=false"
    if techniques.adapter == "prompt":
        return f"{PACKED}: P stands before a sequence, and would be seen by its first record only: set data.pack=false"
    return None


def flash_without_bf16(config: TrainingConfig, techniques: Techniques) -> str | None:
    """Say why F cannot be used, for engines that run transformers' models."""
    if (
        techniques.flash_attention
        and config.hardware.device == "cuda"
        and not format_of(config.precision.parameters).fused_attention
    ):
        return f"F: the flash kernels of CUDA take bf16, not precision={config.precision.name}"
    return None
