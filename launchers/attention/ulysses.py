"""Ulysses (arXiv 2309.14509): ranks exchange parts of the sequence for parts of the heads around attention.

In attention a rank has whole sequences of its part of the heads. Sequences are cut as for the ring: each rank has one
of 2 x ranks chunks from the front and its mirror image from the back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup


class _AllToAll(torch.autograd.Function):
    """An all-to-all: slice i of the first dimension goes to rank i; the gradients go back the same way."""

    @staticmethod
    def forward(ctx: Any, sent: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        received = torch.empty_like(sent, memory_format=torch.contiguous_format)
        distributed.all_to_all_single(received, sent.contiguous(), group=group)
        return received

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _AllToAll.apply(grad, ctx.group), None


def to_heads(parts: list[Tensor], group: ProcessGroup) -> list[Tensor]:
    """Turn each [seq / ranks, batch, heads, head_dim] into [seq, batch, heads / ranks, head_dim], in one exchange.

    Heads are repeated where there are fewer of them than ranks.
    """
    size = group.size()
    cut = [_repeated(part, size).unflatten(2, (size, -1)).movedim(2, 0) for part in parts]
    received = _AllToAll.apply(torch.cat(cut, dim=3), group)
    front, back = received.chunk(2, dim=1)
    whole = torch.cat((front, back.flip(0))).flatten(0, 1)
    return list(whole.split([part.shape[3] for part in cut], dim=2))


def to_sequence(whole: Tensor, group: ProcessGroup) -> Tensor:
    """Turn [seq, batch, heads / ranks, head_dim] into [seq / ranks, batch, heads, head_dim]."""
    front, back = whole.unflatten(0, (2 * group.size(), -1)).chunk(2)
    received = _AllToAll.apply(torch.cat((front, back.flip(0)), dim=1), group)
    return received.movedim(0, 2).flatten(2, 3)


def _repeated(part: Tensor, ranks: int) -> Tensor:
    return part if part.shape[2] >= ranks else part.repeat_interleave(ranks // part.shape[2], dim=2)
