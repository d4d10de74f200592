"""Atom Q: NF4 weights with double quantisation in place of a linear layer; bitsandbytes does the work."""

from __future__ import annotations

import torch
from torch import nn


def quantized_linear(linear: nn.Linear, quantization: str) -> nn.Module:
    """A frozen 4-bit layer with `linear`'s weights, quantised on their device; it computes in their dtype."""
    import bitsandbytes  # large, and only Q needs it

    weight = linear.weight
    layer = bitsandbytes.nn.Linear4bit(
        linear.in_features,
        linear.out_features,
        bias=linear.bias is not None,
        compute_dtype=weight.dtype,
        compress_statistics=True,
        quant_type=quantization,
        device="meta",
    )
    layer.weight = bitsandbytes.nn.Params4bit(weight.data, requires_grad=False, compress_statistics=True, quant_type=quantization, module=layer).to(
        weight.device
    )
    if linear.bias is not None:
        layer.bias = nn.Parameter(linear.bias.data, requires_grad=False)
    return layer


def quantized_tensors(model: nn.Module) -> list[torch.Tensor]:
    """The 4-bit weights and their scales, of both levels."""
    tensors: list[torch.Tensor] = []
    for module in model.modules():
        weight = getattr(module, "weight", None)
        state = getattr(weight, "quant_state", None)
        if isinstance(weight, torch.Tensor) and state is not None:
            tensors += [weight.data, state.absmax, state.state2.absmax]
    return tensors
