"""Products of linear layers in fp8, as a plan asks for them: by torchao's recipe, or emulated."""

from __future__ import annotations

from typing import Any

from llmexp.schema import HardwareConfig
from llmexp.training.config import TrainingConfig

# NVIDIA's GPUs multiply fp8 from compute capability 8.9 on (CUDA C++ Programming Guide, element types of tensor cores),
# AMD's in these architectures (torch._scaled_mm).
ADA = 89
_AMD = ("gfx942", "gfx950")
# Of the sides of matrices that are multiplied in fp8 (torch._scaled_mm).
MULTIPLE = 16


def multiplies_fp8(hardware: HardwareConfig) -> bool:
    """Tell whether the hardware multiplies fp8; a GPU of unknown architecture is taken to, and its ranks look."""
    if hardware.device == "cpu":
        return False
    return hardware.architecture in _AMD if hardware.is_amd else (hardware.sm or ADA) >= ADA


def float8_options(config: TrainingConfig) -> dict[str, Any]:
    """Return the recipe and the fields of torchao's Float8LinearConfig; {} without precision.linears.

    Gradients of weights are products along the positions of a pass, which are padded to a multiple of 16.
    """
    if config.precision.linears is None:
        return {}
    lengths = (config.data.seq_len, *(config.data.seq_len_schedule or ()))
    return {
        "float8": {
            "recipe": config.precision.scaling,
            "emulate": not multiplies_fp8(config.hardware),
            "pad_inner_dim": any(length % MULTIPLE for length in lengths),
        }
    }
