"""Attention to sequences that ranks share, for transformers' models; a rank has the two chunks of ring.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import functional

from llmexp.launchers.attention.block import FlashBlock, UnfusedBlock
from llmexp.launchers.attention.choice import of_whole_sequences
from llmexp.launchers.attention.fused import Attention
from llmexp.launchers.attention.ring import Ring
from llmexp.launchers.attention.ulysses import to_heads, to_sequence
from llmexp.method import Techniques
from llmexp.schema import CpKind


def by_ring(group: ProcessGroup, techniques: Techniques) -> Attention:
    """Return ring attention: inputs are [batch, heads, seq / ranks, head_dim], the result is [batch, seq / ranks, ...].

    It ignores the mask, and so do all functions of this module.
    """
    block = FlashBlock if techniques.flash_attention else UnfusedBlock

    def attend(
        module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
    ) -> tuple[Tensor, None]:
        ring = Ring(group, partial(block, scale=options.get("scaling") or query.shape[-1] ** -0.5))
        return ring.attend(query, key, value).transpose(1, 2), None

    return _as_wide(attend)


def by_ulysses(group: ProcessGroup, techniques: Techniques) -> Attention:
    """Return attention by Ulysses, in the shapes of `by_ring`."""
    attend_whole = of_whole_sequences(techniques)

    def attend(
        module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
    ) -> tuple[Tensor, None]:
        parts = to_heads([part.permute(2, 0, 1, 3) for part in (query, key, value)], group)
        whole, _ = attend_whole(module, *(part.permute(1, 2, 0, 3) for part in parts), None, **options)
        return to_sequence(whole.transpose(0, 1), group).transpose(0, 1), None

    return _as_wide(attend)


def _as_wide(attend: Attention) -> Attention:
    """Return attention that takes values narrower than keys (MLA has such): widened by zeros, which add nothing."""

    def attend_as_wide(
        module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
    ) -> tuple[Tensor, None]:
        missing = key.shape[-1] - value.shape[-1]
        if not missing:
            return attend(module, query, key, value, attention_mask, **options)
        wide, _ = attend(module, query, key, functional.pad(value, (0, missing)), attention_mask, **options)
        return wide[..., :-missing], None

    return attend_as_wide


SHARED: Mapping[CpKind, Callable[[ProcessGroup, Techniques], Attention]] = {"ring": by_ring, "ulysses": by_ulysses}
