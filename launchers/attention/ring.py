"""Causal attention over a sequence that is cut over ranks: keys and values go round the ring (arXiv 2310.01889), no rank holds all of them.

Of 2 x ranks chunks a rank has one from the front and its mirror image from the back, so that the causal half is shared out evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import P2POp, ProcessGroup

from llmexp.launchers.attention.block import Block

ALL = slice(None)


@dataclass(frozen=True)
class Ring:
    """The ranks that share a sequence, and how each computes a block."""

    group: ProcessGroup
    block: Callable[..., Block]

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Queries, keys and values of this rank's two chunks, as Block has them, to their output; backward computes every block again."""
        output: Tensor = _RingAttention.apply(query, key, value, self)
        return output

    def visits(self, pair: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
        """The other ranks' keys and values as they come by, with the part of the own queries that sees them and the part of them that is seen.

        The next ones are under way while these are used, the first ones from now on.
        """
        return self._visits(_Passing(pair, self.group), pair.shape[3] // 2)

    def _visits(self, coming: _Passing, half: int) -> Iterator[tuple[slice, slice, Tensor]]:
        size, own = self.group.size(), self.group.rank()
        for turn in range(1, size):
            pair = coming.arrived()
            if turn + 1 < size:
                coming = _Passing(pair, self.group)
            if (own - turn) % size < own:
                # Its front chunk lies before both of ours, its back chunk behind both.
                yield ALL, slice(half), pair
            else:
                yield slice(half, None), ALL, pair


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, ring: Ring) -> Tensor:
        """The blocks' outputs are added up in fp32, weighted by their log-sum-exp."""
        ctx.ring = ring
        visits = ring.visits(torch.stack((key, value)))
        output, lse = ring.block(query, key, value, causal=True).attend()
        total = output.float()
        for queries, keys, (visiting_key, visiting_value) in visits:
            parts = (query[:, :, queries], visiting_key[:, :, keys], visiting_value[:, :, keys])
            _add(total[:, :, queries], lse[:, :, queries], *ring.block(*parts, causal=False).attend())
        output = total.to(query.dtype)
        ctx.save_for_backward(query, key, value, output, lse)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of keys and values go round behind them, one rank adding after the other, until they are home."""
        query, key, value, output, lse = ctx.saved_tensors
        ring: Ring = ctx.ring
        grad, visits = grad.contiguous(), ring.visits(torch.stack((key, value)))
        of_query, *of_pair = (
            part.float() for part in ring.block(query, key, value, causal=True).gradients(grad, output, lse)
        )
        coming = _Passing(torch.stack(of_pair), ring.group)
        for queries, keys, (visiting_key, visiting_value) in visits:
            parts = (query[:, :, queries], visiting_key[:, :, keys], visiting_value[:, :, keys])
            own = (grad[:, :, queries], output[:, :, queries], lse[:, :, queries])
            adds, *adds_to_pair = ring.block(*parts, causal=False).gradients(*own)
            of_query[:, :, queries] += adds
            visiting = coming.arrived()
            visiting[:, :, :, keys] += torch.stack(adds_to_pair)
            coming = _Passing(visiting, ring.group)
        of_key, of_value = coming.arrived()
        return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype), None


def _add(total: Tensor, lse: Tensor, output: Tensor, further: Tensor) -> None:
    """Add a block's output to the total of those before it, in place."""
    both = torch.logaddexp(lse, further)
    total.mul_((lse - both).exp()[..., None]).add_(output * (further - both).exp()[..., None])
    lse.copy_(both)


class _Passing:
    """A tensor on its way to the next rank, while that of the rank before comes; both at once, so that no rank waits for another's turn."""

    def __init__(self, tensor: Tensor, group: ProcessGroup) -> None:
        ahead, behind = (distributed.get_global_rank(group, (group.rank() + way) % group.size()) for way in (1, -1))
        self._sent, self._received = tensor, torch.empty_like(tensor)  # what is sent must live until it has been
        both = [P2POp(distributed.isend, tensor, ahead, group), P2POp(distributed.irecv, self._received, behind, group)]
        self._works = distributed.batch_isend_irecv(both)

    def arrived(self) -> Tensor:
        """What came."""
        for work in self._works:
            work.wait()
        return self._received
