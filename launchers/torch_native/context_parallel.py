"""Context parallelism: neighboring ranks share every sequence, and only attention sees all of it.

Each of them has one of 2 x cp chunks from the front and its mirror image from the back, by the ring and by Ulysses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from transformers import AttentionInterface

from llmexp.launchers.attention.choice import CONTEXT_PARALLEL
from llmexp.launchers.attention.shared import SHARED
from llmexp.launchers.data.packing import inputs_of_part
from llmexp.launchers.models import assembly
from llmexp.measure.batch import MicroBatch
from llmexp.training.plan.training_plan import TrainingPlan


class SharedSequences:
    """A rank's part of its replica's sequences; build it before the model, which finds its attention by name."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        dims = plan.dims
        assert dims.cp_kind is not None
        # In the order of RANK_ORDER; the pipelines of a replica are told apart like replicas.
        sizes = (dims.pp * dims.dp, dims.cp, dims.tp)
        mesh = init_device_mesh(device.type, sizes, mesh_dim_names=("replica", "sequence", "tensor"))
        self._group, self._ranks = mesh.get_group("sequence"), dims.cp
        attention = SHARED[dims.cp_kind](self._group, assembly.method_of(plan).techniques)
        AttentionInterface.register(CONTEXT_PARALLEL[dims.cp_kind], attention)

    def inputs(self, batch: MicroBatch) -> dict[str, Any]:
        """Return the keyword arguments for this rank's part of a pass."""
        return inputs_of_part(batch, self.part)

    def loss_of_replica(self, own: torch.Tensor) -> torch.Tensor:
        """Return the replica's loss as value, with the gradient of `cp` times the rank's own part of it.

        Gradients are averaged over dp x cp ranks, and so summed over those of a sequence.
        """
        return self.add_up(own.detach().clone()) + self._ranks * (own - own.detach())

    def add_up(self, shares: torch.Tensor) -> torch.Tensor:
        """Return the sum over the ranks of a sequence, in place."""
        distributed.all_reduce(shares, group=self._group)
        return shares

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's chunks of what has a row for each sequence."""
        chunks, rank = whole.chunk(2 * self._ranks, dim=1), self._group.rank()
        return torch.cat((chunks[rank], chunks[-1 - rank]), dim=1)
