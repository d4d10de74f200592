"""Causal attention with torch alone, by a fused kernel or in three unfused steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

# Before this version cuDNN's attention is not safe with lengths that TILE does not divide.
SAFE_CUDNN, TILE = 91501, 128


def cudnn_is_safe(positions: int) -> bool:
    """Tell whether cuDNN's attention may be used for sequences of this length."""
    return positions % TILE == 0 or (torch.backends.cudnn.version() or 0) >= SAFE_CUDNN


def flash(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None = None, kernels: Sequence[SDPBackend] = ()
) -> Tensor:
    """Compute causal attention by one fused kernel of torch only; raise RuntimeError where it cannot take the inputs.

    Without `kernels` it is the one that torch prefers: FlashAttention's, or on some GPUs cuDNN's. query and the result
    are [batch, heads, seq, head_dim], key and value [batch, kv_heads, seq, head_dim].
    """
    grouped = key.shape[1] != query.shape[1]
    cudnn = [SDPBackend.CUDNN_ATTENTION] if query.is_cuda and cudnn_is_safe(query.shape[2]) else []
    with sdpa_kernel([*kernels] or [SDPBackend.FLASH_ATTENTION, *cudnn]):
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=grouped
        )


def unfused(query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
    """Compute causal attention in three steps, with the softmax in fp32, as transformers' eager attention does.

    Shapes are those of `flash`.
    """
    key, value = (part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in (key, value))
    scores = query @ key.transpose(-1, -2) * (scale or query.shape[-1] ** -0.5)
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return (
        functional.softmax(scores.masked_fill(later, -torch.inf), dim=-1, dtype=torch.float32).to(query.dtype) @ value
    )
