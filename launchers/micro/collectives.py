"""The collectives of torch.distributed, each checked once with values whose result is known.

Sizes are those of nccl-tests: the bytes of the larger of what a rank puts in and what it gets out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from llmexp.dtypes import SINGLE, bytes_of
from llmexp.launchers.micro.case import Case, CasePlace
from llmexp.micro.families.base import MicroPoint

ROOT = 0
PERIOD = 7


@dataclass(frozen=True)
class _Exchange:
    """A collective on its buffers: the call, this rank's values to put in, and what must come out on this rank."""

    call: Callable[[], object]
    put: Tensor
    got: Tensor
    wanted: Callable[[], Tensor | None]


def collective(point: MicroPoint, place: CasePlace) -> Case:
    """Make the buffers of a collective; its result is checked with the values of `_of_rank`, whose sum is `_of_all`."""
    ranks = place.world_size
    length = max(ranks, point.sizes["bytes"] // bytes_of(SINGLE) // ranks * ranks)
    made = KINDS[point.kind](place, length)

    def wrong() -> str:
        made.put.copy_(_of_rank(place.rank, made.put))
        made.call()
        wanted = made.wanted()
        ok = wanted is None or torch.equal(made.got, wanted)
        # Sums would grow with every further call, up to infinity.
        made.put.zero_()
        return "" if ok else f"rank {place.rank} got a wrong result from {point.kind}"

    return Case([made.call], wrong, distributed.get_backend())


def _of_rank(rank: int, like: Tensor) -> Tensor:
    """Return small whole numbers that differ from rank to rank, so that sums are exact."""
    return _pattern(like) + (rank + 1)


def _of_all(ranks: int, like: Tensor) -> Tensor:
    """Return the sum of the values of all ranks."""
    return _pattern(like) * ranks + ranks * (ranks + 1) / 2


def _pattern(like: Tensor) -> Tensor:
    return (torch.arange(like.numel(), dtype=torch.int32, device=like.device) % PERIOD).to(like.dtype)


def _all_reduce(place: CasePlace, length: int) -> _Exchange:
    buffer = place.random(length)
    return _Exchange(lambda: distributed.all_reduce(buffer), buffer, buffer, lambda: _of_all(place.world_size, buffer))


def _reduce(place: CasePlace, length: int) -> _Exchange:
    buffer = place.random(length)

    def wanted() -> Tensor | None:
        return _of_all(place.world_size, buffer) if place.rank == ROOT else None

    return _Exchange(lambda: distributed.reduce(buffer, ROOT), buffer, buffer, wanted)


def _broadcast(place: CasePlace, length: int) -> _Exchange:
    buffer = place.random(length)
    return _Exchange(lambda: distributed.broadcast(buffer, ROOT), buffer, buffer, lambda: _of_rank(ROOT, buffer))


def _all_gather(place: CasePlace, length: int) -> _Exchange:
    own, gathered = place.random(length // place.world_size), place.random(length)
    return _Exchange(
        lambda: distributed.all_gather_into_tensor(gathered, own),
        own,
        gathered,
        lambda: torch.cat([_of_rank(rank, own) for rank in range(place.world_size)]),
    )


def _reduce_scatter(place: CasePlace, length: int) -> _Exchange:
    whole, own = place.random(length), place.random(length // place.world_size)
    return _Exchange(
        lambda: distributed.reduce_scatter_tensor(own, whole),
        whole,
        own,
        lambda: _part(_of_all(place.world_size, whole), place),
    )


def _all_to_all(place: CasePlace, length: int) -> _Exchange:
    sent, received = place.random(length), place.random(length)
    return _Exchange(
        lambda: distributed.all_to_all_single(received, sent),
        sent,
        received,
        lambda: torch.cat([_part(_of_rank(rank, sent), place) for rank in range(place.world_size)]),
    )


def _send_recv(place: CasePlace, length: int) -> _Exchange:
    """Send to the next rank and receive from the one before, at the same time."""
    sent, received = place.random(length), place.random(length)
    after, before = (place.rank + 1) % place.world_size, (place.rank - 1) % place.world_size

    def call() -> None:
        pair = [
            distributed.P2POp(distributed.isend, sent, after),
            distributed.P2POp(distributed.irecv, received, before),
        ]
        for request in distributed.batch_isend_irecv(pair):
            request.wait()

    return _Exchange(call, sent, received, lambda: _of_rank(before, sent))


def _part(whole: Tensor, place: CasePlace) -> Tensor:
    """Return this rank's part of what all ranks share."""
    return whole.chunk(place.world_size)[place.rank]


KINDS: dict[str, Callable[[CasePlace, int], _Exchange]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
    "send_recv": _send_recv,
}
