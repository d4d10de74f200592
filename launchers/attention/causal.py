"""Causal attention with torch alone, by a fused kernel or in three unfused steps."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    kernel: SDPBackend = SDPBackend.FLASH_ATTENTION,
) -> Tensor:
    """Compute causal attention by one fused kernel of torch only; raise RuntimeError where it cannot take the inputs.

    query and the result are [batch, heads, seq, head_dim], key and value [batch, kv_heads, seq, head_dim].
    """
    grouped = key.shape[1] != query.shape[1]
    with sdpa_kernel(kernel):
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
