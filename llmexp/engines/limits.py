"""What more than one engine cannot do, as the reason of a skip or None."""

from __future__ import annotations

from llmexp.method import Techniques
from llmexp.plan.dims import ParallelDims
from llmexp.schema import RunConfig


def beyond_data_parallelism(config: RunConfig, dims: ParallelDims) -> str | None:
    """For engines that know no other degree than dp."""
    other = {"tp": dims.tp, "pp": dims.pp, "cp": dims.cp, "ep": dims.ep}
    wide = [f"{name}={degree}" for name, degree in other.items() if degree > 1]
    return f"engine={config.engine.name} runs data parallelism only, not {', '.join(wide)}" if wide else None


def flash_without_bf16(config: RunConfig, techniques: Techniques) -> str | None:
    """For engines that run transformers' models with F."""
    if techniques.flash_attention and config.hardware.device == "cuda" and config.precision.parameters != "bf16":
        return f"F: the flash kernels of CUDA take bf16, not precision={config.precision.name}"
    return None
