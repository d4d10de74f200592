"""Atom Q: NF4 weights with double quantization replace a linear layer's; bitsandbytes does the work."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def quantized_linear(linear: nn.Linear, quantization: str) -> nn.Module:
    """Return a frozen 4-bit layer with `linear`'s weights, quantized on their device; it computes in their dtype."""
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
    layer.weight = bitsandbytes.nn.Params4bit(
        weight.data, requires_grad=False, compress_statistics=True, quant_type=quantization, module=layer
    ).to(weight.device)
    if linear.bias is not None:
        layer.bias = nn.Parameter(linear.bias.data, requires_grad=False)
    return layer


def quantized_tensors(model: nn.Module) -> list[torch.Tensor]:
    """Return the 4-bit weights and their scales."""
    return [weight.data for weight in _quantized_weights(model)] + quantization_scales(model)


def quantization_scales(model: nn.Module) -> list[torch.Tensor]:
    """Return the scales of both levels of the double quantization."""
    states = [weight.quant_state for weight in _quantized_weights(model)]
    return [scales for state in states for scales in (state.absmax, state.state2.absmax)]


def _quantized_weights(model: nn.Module) -> list[Any]:
    weights = (getattr(module, "weight", None) for module in model.modules())
    return [
        weight
        for weight in weights
        if isinstance(weight, torch.Tensor) and getattr(weight, "quant_state", None) is not None
    ]
