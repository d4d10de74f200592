"""Ring attention (arXiv 2310.01889): causal attention over a sequence that is divided over ranks.

Keys and values pass from rank to rank, and no rank holds all of them. The sequence is cut into 2 x ranks chunks; each
rank has one from the front and its mirror image from the back, so that the causal work is balanced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import P2POp, ProcessGroup

from llmexp.launchers.attention.block import AttentionBlock

ALL = slice(None)


@dataclass(frozen=True)
class Ring:
    """The ranks that share a sequence, and how each computes a block."""

    group: ProcessGroup
    block: Callable[..., AttentionBlock]

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the output for this rank's two chunks, in the shapes of Block; backward computes every block again."""
        output: Tensor = _RingAttention.apply(query, key, value, self)
        return output

    def visits(self, pair: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield the other ranks' keys and values as they arrive.

        Each item is the slice of the own queries that sees them, the slice of them that is seen, and the pair. The next
        pair is sent while the current one is used, and the first one from now on.
        """
        return self._visits(_Passing(pair, self.group), pair.shape[3] // 2)

    def _visits(self, coming: _Passing, half: int) -> Iterator[tuple[slice, slice, Tensor]]:
        size, own = self.group.size(), self.group.rank()
        for turn in range(1, size):
            pair = coming.arrived()
            if turn + 1 < size:
                coming = _Passing(pair, self.group)
            if (own - turn) % size < own:
                # Its front chunk lies before both of ours, its back chunk after both.
                yield ALL, slice(half), pair
            else:
                yield slice(half, None), ALL, pair


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, ring: Ring) -> Tensor:
        """Add the blocks' outputs up in fp32, weighted by their log-sum-exp."""
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
        """Send the gradients of keys and values after them; each rank adds its part until they reach their owner."""
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
    """Add a block's output to the total of the blocks before it, in place."""
    both = torch.logaddexp(lse, further)
    total.mul_((lse - both).exp()[..., None]).add_(output * (further - both).exp()[..., None])
    lse.copy_(both)


class _Passing:
    """A tensor that is sent to the next rank while that of the previous rank is received.

    Both are posted at once, so that no rank waits for another's turn.
    """

    def __init__(self, tensor: Tensor, group: ProcessGroup) -> None:
        ahead, behind = (distributed.get_global_rank(group, (group.rank() + way) % group.size()) for way in (1, -1))
        # the sent tensor must live until it has been sent
        self._sent, self._received = tensor, torch.empty_like(tensor)
        both = [P2POp(distributed.isend, tensor, ahead, group), P2POp(distributed.irecv, self._received, behind, group)]
        self._works = distributed.batch_isend_irecv(both)

    def arrived(self) -> Tensor:
        """Wait, and return the tensor received."""
        for work in self._works:
            work.wait()
        return self._received
