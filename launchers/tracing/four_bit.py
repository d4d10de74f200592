"""4-bit layers without content: bitsandbytes cannot make its weights of fake tensors, but can multiply with them."""

from __future__ import annotations

import math
from typing import Any

import bitsandbytes
import torch
from bitsandbytes.functional import QuantState, get_4bit_type
from torch import nn

# Blocks of NF4 and of the second quantization, bitsandbytes' defaults.
BLOCK, OF_SCALES = 64, 256


class FourBitLinear(bitsandbytes.nn.Linear4bit):
    """A frozen layer with weights and scales of bitsandbytes' sizes, which are multiplied by its own functions."""

    def __init__(self, linear: nn.Linear, quantization: str) -> None:
        nn.Module.__init__(self)
        weight, bias = linear.weight, linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.compute_dtype = weight.dtype
        two_in_a_byte = torch.empty((math.ceil(weight.numel() / 2), 1), dtype=torch.uint8)
        packed: Any = nn.Parameter(two_in_a_byte, requires_grad=False)
        packed.quant_state = _state(weight, quantization)
        packed.compress_statistics, packed.quant_type = True, quantization
        self.weight = packed
        self.bias = None if bias is None else nn.Parameter(bias.data, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product, in the dtype of `x`."""
        packed: Any = self.weight
        made: torch.Tensor = bitsandbytes.matmul_4bit(x, packed.t(), quant_state=packed.quant_state, bias=self.bias)
        return made.to(x.dtype)


def _state(weight: torch.Tensor, quantization: str) -> QuantState:
    """Return the scales of both levels, without content."""
    scales = math.ceil(weight.numel() / BLOCK)
    of_scales = QuantState(
        absmax=torch.empty(math.ceil(scales / OF_SCALES)),
        code=torch.empty(256),
        blocksize=OF_SCALES,
        dtype=torch.float32,
    )
    return QuantState(
        absmax=torch.empty(scales, dtype=torch.uint8),
        shape=weight.shape,
        dtype=weight.dtype,
        blocksize=BLOCK,
        code=get_4bit_type(quantization, device="cpu"),
        quant_type=quantization,
        offset=torch.empty(()),
        state2=of_scales,
    )
