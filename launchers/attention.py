"""Atom F: which attention function a model calls. Causal over right-padded sequences, so no mask is ever needed."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface

# Not with "flash" in it: transformers would look for a package of that name.
SDPA_FUSED = "llmexp_sdpa"


def implementation(flash: bool, device: torch.device) -> str:
    """The name transformers knows the attention by: eager without F; with F the flash-attn package on CUDA, else torch's flash backend."""
    if not flash:
        return "eager"
    if device.type == "cuda" and importlib.util.find_spec("flash_attn"):
        return "flash_attention_2"
    AttentionInterface.register(SDPA_FUSED, sdpa_flash)
    return SDPA_FUSED


def sdpa_flash(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: None, **options: Any
) -> tuple[torch.Tensor, None]:
    """Causal attention by torch's flash kernel and no other; raises RuntimeError where that kernel cannot take the inputs.

    query is [batch, heads, seq, head_dim], key and value [batch, kv_heads, seq, head_dim]; the result is [batch, seq, heads, head_dim].
    """
    grouped = key.shape[1] != query.shape[1]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        output = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=options.get("scaling"), enable_gqa=grouped)
    return output.transpose(1, 2).contiguous(), None
