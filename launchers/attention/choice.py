"""Atoms F and RS choose the attention function that a transformers model calls.

All of them are causal over right-padded sequences, so that no mask is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from llmexp.errors import ConfigError
from llmexp.launchers.attention.causal import unfused
from llmexp.launchers.attention.fused import Kernel, attention_of, sdpa_fused
from llmexp.method import Techniques
from llmexp.schema import CpKind

EAGER_AGAIN = "llmexp_eager_again"
# Attention to sequences that ranks share; engines register it, as they know the ranks.
ULYSSES = "llmexp_ulysses"
CONTEXT_PARALLEL: dict[CpKind | None, str] = {"ring": "llmexp_ring", "ulysses": ULYSSES}


def implementation(
    techniques: Techniques, device: torch.device, *, records: bool = False, flash: Kernel = "auto"
) -> str:
    """Return the name by which transformers knows the attention function, and register the function.

    Without F it is eager; with F it is the fused kernel of `flash`. Set `records` where a sequence holds several
    records, which must not see each other; eager makes a mask of their positions.
    """
    if techniques.attention_recomputation:
        AttentionInterface.register(EAGER_AGAIN, eager_again)
        AttentionMaskInterface.register(EAGER_AGAIN, eager_mask)
        return EAGER_AGAIN
    if not techniques.flash_attention:
        return "eager"
    name, function = attention_of(flash, device, records=records)
    AttentionInterface.register(name, function)
    return name


def eager_again(module: torch.nn.Module, *args: Any, **options: Any) -> Any:
    """Run the eager attention of the module's own model, and keep only its inputs for backward.

    Raises ConfigError where the model has none.
    """
    name = type(module).__module__
    eager = getattr(sys.modules[name], "eager_attention_forward", None)
    if eager is None:
        raise ConfigError(f"RS reruns a transformers model's eager_attention_forward, and {name} has none")
    return checkpoint(eager, module, *args, use_reentrant=False, **options)


def sdpa_unfused(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
) -> tuple[Tensor, None]:
    """Call `unfused` with the signature of transformers; the result is [batch, seq, heads, head_dim]."""
    return unfused(query, key, value, options.get("scaling")).transpose(1, 2).contiguous(), None


def sdpa_unfused_again(*args: Any, **options: Any) -> tuple[Tensor, None]:
    """Run `sdpa_unfused`, and keep only its inputs for backward."""
    again: tuple[Tensor, None] = checkpoint(sdpa_unfused, *args, use_reentrant=False, **options)
    return again


def of_whole_sequences(techniques: Techniques) -> Callable[..., tuple[Tensor, None]]:
    """Return the attention that Ulysses calls once a rank has whole sequences.

    It ignores the mask, which covers only the rank's part.
    """
    if techniques.attention_recomputation:
        return sdpa_unfused_again
    return sdpa_fused if techniques.flash_attention else sdpa_unfused
