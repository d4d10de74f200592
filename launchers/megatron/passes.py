"""What one rank computes of a pass: a replica's ranks see the same sequences; context parallelism cuts them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.utils import get_batch_on_this_cp_rank
from torch.nn import functional

from llmexp.launchers.data.sequences import IGNORED
from llmexp.measure.loop import MicroBatch


@dataclass(frozen=True)
class Share:
    """Ids, the tokens that follow them and whether those count, all [micro, seq_len / cp]; `counted` of the whole sequences."""

    ids: torch.Tensor
    targets: torch.Tensor
    counts: torch.Tensor
    counted: torch.Tensor

    @classmethod
    def of(cls, batch: MicroBatch) -> Share:
        """This rank's share of a pass."""
        targets = functional.pad(batch.labels[:, 1:], (0, 1), value=IGNORED)
        counts = targets != IGNORED
        cut = get_batch_on_this_cp_rank({"ids": batch.input_ids, "targets": targets.clamp(min=0), "counts": counts})
        return cls(**cut, counted=counts.sum())

    def through(self, stage: DistributedDataParallel) -> torch.Tensor:
        """A stage's output: of the last one the loss at every position, [micro, seq_len / cp]; of others what the next one takes."""
        output: torch.Tensor = stage(self.ids, None, None, labels=self.targets)
        return output

    def loss(self, losses: torch.Tensor) -> torch.Tensor:
        """This rank's part of the mean over the tokens that count; the parts of a replica's context-parallel ranks add up to it."""
        return (losses * self.counts).sum() / self.counted
