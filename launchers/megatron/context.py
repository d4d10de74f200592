"""Core attention for context parallelism, which megatron-core itself has only with TransformerEngine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from megatron.core import parallel_state
from megatron.core.transformer import TransformerConfig
from torch import Tensor, nn

from llmexp.launchers.attention.block import AttentionBlock, FlashBlock, UnfusedBlock
from llmexp.launchers.attention.causal import flash, unfused
from llmexp.launchers.attention.ring import Ring
from llmexp.launchers.attention.ulysses import to_heads, to_sequence


class RingCoreAttention(nn.Module):
    """Ring attention, for cp_comm_type p2p.

    query is [seq / cp, batch, heads, head_dim], the result [seq / cp, batch, heads x head_dim].
    """

    block: ClassVar[type[AttentionBlock]]

    def __init__(self, config: TransformerConfig, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        scale = softmax_scale or (config.kv_channels or 1) ** -0.5
        self._ring = Ring(parallel_state.get_context_parallel_group(), partial(self.block, scale=scale))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **_: Any) -> Tensor:
        """Compute causal attention over the whole sequence."""
        parts = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        return self._ring.attend(*parts).permute(2, 0, 1, 3).flatten(2)


class FlashRingAttention(RingCoreAttention):
    """Ring attention with atom F."""

    block = FlashBlock


class UnfusedRingAttention(RingCoreAttention):
    """Ring attention without atom F."""

    block = UnfusedBlock


class UlyssesCoreAttention(nn.Module):
    """Ulysses attention, for cp_comm_type a2a; the shapes are those of RingCoreAttention."""

    attend: ClassVar[Callable[..., Tensor]]

    def __init__(self, config: TransformerConfig, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self._scale = softmax_scale
        self._group = parallel_state.get_context_parallel_group()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **_: Any) -> Tensor:
        """Compute causal attention over whole sequences of some heads."""
        parts = (part.permute(1, 2, 0, 3) for part in to_heads([query, key, value], self._group))
        return to_sequence(self.attend(*parts, scale=self._scale).permute(2, 0, 1, 3), self._group).flatten(2)


class FlashUlyssesAttention(UlyssesCoreAttention):
    """Ulysses attention with atom F."""

    attend = staticmethod(flash)


class UnfusedUlyssesAttention(UlyssesCoreAttention):
    """Ulysses attention without atom F."""

    attend = staticmethod(unfused)


# Keys: Megatron's cp_comm_type, and whether the method has atom F.
CONTEXT_PARALLEL: dict[tuple[str, bool], type[nn.Module]] = {
    ("p2p", True): FlashRingAttention,
    ("p2p", False): UnfusedRingAttention,
    ("a2a", True): FlashUlyssesAttention,
    ("a2a", False): UnfusedUlyssesAttention,
}
