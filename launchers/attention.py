"""Atoms F and RS: which attention function a model calls. Causal over right-padded sequences, so no mask is ever needed."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from llmexp.errors import ConfigError
from llmexp.method import Techniques

# Not with "flash" in it: transformers would look for a package of that name.
SDPA_FUSED = "llmexp_sdpa"
EAGER_AGAIN = "llmexp_eager_again"


def implementation(techniques: Techniques, device: torch.device) -> str:
    """The name transformers knows the attention by: eager without F; with F the flash-attn package on CUDA, else torch's flash backend."""
    if techniques.attention_recomputation:
        AttentionInterface.register(EAGER_AGAIN, eager_again)
        AttentionMaskInterface.register(EAGER_AGAIN, eager_mask)
        return EAGER_AGAIN
    if not techniques.flash_attention:
        return "eager"
    if device.type == "cuda" and importlib.util.find_spec("flash_attn"):
        return "flash_attention_2"
    AttentionInterface.register(SDPA_FUSED, sdpa_flash)
    return SDPA_FUSED


def eager_again(module: torch.nn.Module, *args: Any, **options: Any) -> Any:
    """The eager attention that the module's own model has, of which only the inputs are kept for backward; raises ConfigError where it has none."""
    name = type(module).__module__
    eager = getattr(sys.modules[name], "eager_attention_forward", None)
    if eager is None:
        raise ConfigError(f"RS runs the eager_attention_forward of a model of transformers again, and {name} has none")
    return checkpoint(eager, module, *args, use_reentrant=False, **options)


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
