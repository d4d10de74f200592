"""Z1 of cut matrices: each replica keeps the optimizer's states of some parameters, and updates those for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn

from llmexp.launchers.training.optimizer_state import local


class PartitionedOptimizer(torch.optim.Optimizer):
    """An optimizer of DTensors over `replicas`, which hold the same parts: torch's ZeroRedundancyOptimizer takes none.

    `make` builds that of this rank's share, `optim`.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        replicas: distributed.ProcessGroup,
    ) -> None:
        super().__init__(parameters, {})
        self._replicas, own = replicas, distributed.get_rank(replicas)
        self._shares = evenly([part.numel() for part in map(local, parameters)], replicas.size())
        self._parameters = parameters
        share = [each for each, owner in zip(parameters, self._shares, strict=True) if owner == own]
        # There may be fewer parameters than replicas, and a group may be empty.
        self._has_share, self.optim = bool(share), make([{"params": share}])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update this rank's share, then take what the others have updated."""
        if self._has_share:
            self.optim.step()
        sent = [
            distributed.broadcast(local(each), group=self._replicas, group_src=owner, async_op=True)
            for each, owner in zip(self._parameters, self._shares, strict=True)
        ]
        for each in sent:
            each.wait()


def evenly(sizes: list[int], ranks: int) -> list[int]:
    """Return each parameter's rank: the largest first, each to the rank with the fewest elements."""
    held, owners = [0] * ranks, [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        owners[place] = held.index(min(held))
        held[owners[place]] += sizes[place]
    return owners
