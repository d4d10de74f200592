"""Half-quadratic quantization: real zero points by which few weights are far off, without any text.

Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models", 2023, and the values and the order of
steps of their library hqq 0.2.8, without the bound on its scales, which fp16 needs: the sum of |error|^0.7 is made
small by turns, over the errors that may stay and over the zero point, with a scale that stays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from llmexp.compress.config import Quantize
from llmexp.errors import ConfigError
from llmexp.launchers.compress.loading import matrices_of

NORM = 0.7
STEPS = 20
# How dear a difference is between the errors that may stay and those that there are; it grows with every step.
PENALTY = 10.0
GROWTH = 1.01
# The range of a group that counts as one value, which its zero point alone gives.
ONE_VALUE = 1e-4


@torch.no_grad()
def quantize(model: PreTrainedModel, recipe: Quantize) -> dict[str, torch.Tensor]:
    """Round the model's matrices in place; return its tensors with these as codes, scales and zero points.

    That is the format int-quantized of compressed-tensors, with zero points that are no integers. Raises ConfigError
    for experts.
    """
    bits, stored, matrices = int(recipe.weights.removeprefix("int")), model.state_dict(), matrices_of(model)
    if not stored.keys() >= {f"{name}.weight" for name in matrices}:
        raise ConfigError("compress.symmetric=false: transformers loads no zero points of experts: choose rtn or gptq")
    for name, matrix in matrices.items():
        groups = matrix.reshape(-1, recipe.group_size or matrix.shape[1])
        scale, zero = (found.to(matrix.dtype) for found in scale_and_zero(groups.float(), bits))
        codes = _codes(groups.float(), scale.float(), zero.float(), bits)
        matrix.copy_(((codes.to(matrix.dtype) - zero) * scale).view_as(matrix))
        parts = {"weight": codes.to(torch.int8).view_as(matrix)}
        parts |= {"weight_scale": scale.view(len(matrix), -1), "weight_zero_point": zero.view(len(matrix), -1)}
        stored |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    others = [name for name in linear if name not in matrices]
    model.config.quantization_config = _format(recipe, bits, model.dtype) | {"ignore": others}
    return stored


def scale_and_zero(groups: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's scale, by which its codes reach from the least to the largest weight, and its zero point."""
    low, high = groups.aminmax(dim=1, keepdim=True)
    scale = torch.where(high - low > ONE_VALUE, (high - low) / (2**bits - 1), 1.0)
    zero = -(2 ** (bits - 1)) - low / scale
    best, penalty, least = zero, PENALTY, torch.inf
    for _ in range(STEPS):
        codes = _codes(groups, scale, zero, bits)
        error = groups - (codes - zero) * scale
        if (mean := float(error.abs().mean())) >= least:
            break
        best, least = zero, mean
        zero = (codes - (groups - _outliers(error, penalty)) / scale).mean(1, keepdim=True)
        penalty *= GROWTH
    return scale, best


def _codes(groups: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, bits: int) -> torch.Tensor:
    return (groups / scale + zero).round().clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _outliers(error: torch.Tensor, penalty: float) -> torch.Tensor:
    """Return the errors that may stay: shrunk towards zero, the more the smaller they are."""
    size = error.abs()
    return error.sign() * (size - size.pow(NORM - 1) / penalty).clamp(min=0)


def _format(recipe: Quantize, bits: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the entry of config.json by which transformers and compressed-tensors read the weights."""
    shared = {"strategy": "group", "group_size": recipe.group_size} if recipe.group_size else {"strategy": "channel"}
    weights = {"num_bits": bits, "type": "int", "symmetric": False, "zp_dtype": str(dtype)} | shared
    group = {"targets": ["Linear"], "format": "int-quantized", "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
    }
