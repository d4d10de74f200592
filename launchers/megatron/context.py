"""Megatron's core attention under context parallelism, which megatron-core itself has only with TransformerEngine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from megatron.core import parallel_state
from megatron.core.transformer import TransformerConfig
from torch import Tensor, nn

from llmexp.launchers.attention.block import Block, FlashBlock, UnfusedBlock
from llmexp.launchers.attention.causal import flash, unfused
from llmexp.launchers.attention.ring import Ring
from llmexp.launchers.attention.ulysses import to_heads, to_sequence


class RingCoreAttention(nn.Module):
    """cp_comm_type p2p; query is [seq / cp, batch, heads, head_dim], the result [seq / cp, batch, heads x head_dim]."""

    block: ClassVar[type[Block]]

    def __init__(self, config: TransformerConfig, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        scale = softmax_scale or (config.kv_channels or 1) ** -0.5
        self._ring = Ring(parallel_state.get_context_parallel_group(), partial(self.block, scale=scale))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **_: Any) -> Tensor:
        """Causal, over the whole sequence."""
        parts = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        return self._ring.attend(*parts).permute(2, 0, 1, 3).flatten(2)


class FlashRingAttention(RingCoreAttention):
    """With F."""

    block = FlashBlock


class UnfusedRingAttention(RingCoreAttention):
    """Without F."""

    block = UnfusedBlock


class UlyssesCoreAttention(nn.Module):
    """cp_comm_type a2a; shapes as for the ring."""

    attend: ClassVar[Callable[..., Tensor]]

    def __init__(self, config: TransformerConfig, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self._scale = softmax_scale
        self._group = parallel_state.get_context_parallel_group()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **_: Any) -> Tensor:
        """Causal, over whole sequences of some heads."""
        parts = (part.permute(1, 2, 0, 3) for part in to_heads([query, key, value], self._group))
        return to_sequence(self.attend(*parts, scale=self._scale).permute(2, 0, 1, 3), self._group).flatten(2)


class FlashUlyssesAttention(UlyssesCoreAttention):
    """With F."""

    attend = staticmethod(flash)


class UnfusedUlyssesAttention(UlyssesCoreAttention):
    """Without F."""

    attend = staticmethod(unfused)


# By Megatron's cp_comm_type, and whether the method has F.
CONTEXT_PARALLEL: dict[tuple[str, bool], type[nn.Module]] = {
    ("p2p", True): FlashRingAttention,
    ("p2p", False): UnfusedRingAttention,
    ("a2a", True): FlashUlyssesAttention,
    ("a2a", False): UnfusedUlyssesAttention,
}
