"""Products of linear layers in fp8, as a plan asks for them: by torchao's recipe, TransformerEngine's, or emulated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.schema import HardwareConfig
from llmexp.training.config import TrainingConfig

# NVIDIA's GPUs multiply fp8 from compute capability 8.9 on (CUDA C++ Programming Guide, element types of tensor cores),
# AMD's in these architectures (torch._scaled_mm).
ADA = 89
_AMD = ("gfx942", "gfx950")
# Of the sides of matrices that are multiplied in fp8 (torch._scaled_mm).
MULTIPLE = 16
# The recipe of OCP's microscaling format: elements that share a scale, and the architectures for which torchao 0.18 has
# its kernels, compute capability 10.
MX, MX_BLOCK, MX_ARCHITECTURES = "mxfp8", 32, range(100, 110)
MEGATRON, TORCH = "megatron", "torch"
# Tensor parallelism cuts the inputs of these, and the outputs of the others.
_CUT_BY_INPUTS = ("o_proj", "down_proj")
# TransformerEngine's recipes, for Megatron: a scale of a matrix by its largest now, or in earlier steps; or of a block.
TENSORWISE, DELAYED, BLOCKS = "tensorwise", "delayed", (MX, "blockwise")
TORCHAO = (TENSORWISE, "rowwise", "rowwise_with_gw_hp", MX)
TRANSFORMER_ENGINE = (TENSORWISE, DELAYED, *BLOCKS)
# Compute capabilities 10 and 11 multiply matrices of one scale in any order of their elements (its pytorch/utils.py).
_ANY_ORDER = range(100, 120)
# A scale of 8 bits for 32 elements, or of 32 bits for 128: in bytes of an element.
SCALE = 1 / 32


def multiplies_fp8(hardware: HardwareConfig) -> bool:
    """Tell whether the hardware multiplies fp8; a GPU of unknown architecture is taken to, and its ranks look."""
    if hardware.device == "cpu":
        return False
    return hardware.architecture in _AMD if hardware.is_amd else (hardware.sm or ADA) >= ADA


def by_transformer_engine(config: TrainingConfig) -> bool:
    """Tell whether TransformerEngine multiplies in fp8, which it does for Megatron."""
    return config.precision.linears is not None and config.engine.name == MEGATRON


def has_orders(config: TrainingConfig) -> bool:
    """Tell whether TransformerEngine needs a matrix again in the order of another product."""
    return config.precision.scaling in BLOCKS or config.hardware.sm not in _ANY_ORDER


def weight_bytes(config: TrainingConfig) -> float:
    """Return the least bytes of a layer's weight: fp8 alone, in one or two orders (megatron-core's fp8_param)."""
    return kept_bytes(config) * (1 + has_orders(config))


def kept_bytes(config: TrainingConfig) -> float:
    """Return the bytes of an element of an input that TransformerEngine keeps for backward, in one order alone."""
    return 1 + SCALE * (config.precision.scaling in BLOCKS)


def multiplies_recipe(config: TrainingConfig) -> bool:
    """Tell whether the hardware multiplies fp8 as `precision.scaling` scales it."""
    hardware = config.hardware
    if config.precision.scaling != MX or not multiplies_fp8(hardware):
        return multiplies_fp8(hardware)
    return not hardware.is_amd and hardware.sm in (None, *MX_ARCHITECTURES)


def mx_limit(config: TrainingConfig) -> str | None:
    """Say why blocks of elements cannot share scales, or None."""
    if config.precision.scaling != MX:
        return None
    shape, dtype = shape_of(config.model), config.precision.parameters
    odd = next(undivided(shape, MX_BLOCK), None) if shape else None
    length = next((length for length in _lengths(config) if length % MX_BLOCK), None)
    why = {
        f"its products are in bf16, and precision.parameters={dtype}": dtype != "bf16",
        f"{MX_BLOCK} elements share a scale, and {MX_BLOCK} does not divide {odd} of model={config.model.name}": odd,
        f"{MX_BLOCK} elements share a scale, and {MX_BLOCK} does not divide {length} positions: set "
        f"data.seq_len={MX_BLOCK * max(1, (length or 0) // MX_BLOCK)}": length,
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"precision.scaling={MX}: {reason}" if reason else None


def undivided(shape: ModelShape, multiple: int, tp: int = 1) -> Iterator[str]:
    """Yield the layers' matrices of which a rank's part has a side that is no multiple."""
    for name, (inputs, outputs) in shape.matrices.items():
        part = (inputs // tp, outputs) if name in _CUT_BY_INPUTS else (inputs, outputs // tp)
        if any(side % multiple for side in part):
            yield "{}, {} x {}".format(name, *part) + f" with parallelism.tp={tp}," * (tp > 1)


def _lengths(config: TrainingConfig) -> tuple[int, ...]:
    return config.data.seq_len, *(config.data.seq_len_schedule or ())


def float8_options(config: TrainingConfig) -> dict[str, Any]:
    """Return the recipe and the fields of torchao's Float8LinearConfig; {} without precision.linears.

    Gradients of weights are products along the positions of a pass, which are padded to a multiple of 16.
    """
    if config.precision.linears is None:
        return {}
    options = {"recipe": config.precision.scaling, "emulate": not multiplies_recipe(config)}
    if config.precision.scaling != MX:
        options["pad_inner_dim"] = any(length % MULTIPLE for length in _lengths(config))
    return {"float8": options}
