"""A stand-in for the package flash-attn: its functions, shapes and layouts, computed by torch's own attention."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float | None) -> Tensor:
    """Attend; all tensors are [batch, seq, heads, head_dim]."""
    options: dict[str, Any] = {"is_causal": causal, "scale": softmax_scale, "enable_gqa": k.shape[2] != q.shape[2]}
    parts = [part.transpose(1, 2) for part in (q, k, v)]
    if q.is_cuda:
        return torch.ops.aten._scaled_dot_product_flash_attention(*parts, 0.0, causal, scale=softmax_scale)[
            0
        ].transpose(1, 2)
    return functional.scaled_dot_product_attention(*parts, **options).transpose(1, 2)


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, bounds_k: Tensor, longest: int, longest_k: int, **options: Any
) -> Tensor:
    """Attend within each record; all tensors are [tokens, heads, head_dim]."""
    ends = bounds.tolist()
    assert (ends, longest) == (bounds_k.tolist(), longest_k)
    each = [
        flash_attn_func(*(part[begin:end].unsqueeze(0) for part in (q, k, v)), **options).squeeze(0)
        for begin, end in pairwise(ends)
    ]
    return torch.cat(each)
