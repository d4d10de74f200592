"""How many bits a weight takes, by its scheme: a file may store more, such as four bits in a byte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from llmexp.compress.config import Prune, Quantize, Sparsify

SCALE_BITS = 16
# Of a zero point that is no integer; others have the bits of a weight.
ZERO_BITS = 16
# Bits of a weight, weights that share a scale, bits of the scale: OCP Microscaling 1.0, and NVIDIA's NVFP4.
FOUR_BIT_FLOATS = {"mxfp4": (4, 32, 8), "nvfp4": (4, 16, 8)}


def bits_of(compress: Quantize | Sparsify | Prune, matrices: Iterable[torch.Tensor]) -> int:
    """Return the bits of all these matrices with scales and zero points; zeros count as other weights do."""
    return sum(_matrix_bits(compress, matrix) for matrix in matrices)


def _matrix_bits(compress: Quantize | Sparsify | Prune, matrix: torch.Tensor) -> int:
    rows, columns = matrix.shape
    if not isinstance(compress, Quantize):
        return rows * columns * matrix.element_size() * 8
    if compress.weights in FOUR_BIT_FLOATS:
        bits, group, scale_bits = FOUR_BIT_FLOATS[compress.weights]
        return rows * columns * bits + rows * -(-columns // group) * scale_bits
    bits = 8 if compress.weights == "fp8" else int(compress.weights.removeprefix("int"))
    scales = rows * -(-columns // (compress.group_size or columns))
    if compress.activations == "fp8_static":
        scales = 1
    zero_bits = ZERO_BITS if compress.method == "hqq" else 0 if compress.symmetric else bits
    return rows * columns * bits + scales * (SCALE_BITS + zero_bits)


def parameters_of(model: Any) -> int:
    """Return the parameters as shapes say; the scales of quantized weights are none, and tied ones count once."""
    found = {
        id(parameter): parameter.numel()
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if not isinstance(module, nn.Linear) or name in ("weight", "bias")
    }
    return sum(found.values())


@torch.no_grad()
def sparsity_of(matrices: Iterable[torch.Tensor]) -> float:
    """Return the share of zeros of the matrices; a quantized model's are whole after its first forward pass."""
    counted = [(int((matrix == 0).sum()), matrix.numel()) for matrix in matrices]
    zeros, weights = (sum(column) for column in zip(*counted, strict=True))
    return zeros / weights
