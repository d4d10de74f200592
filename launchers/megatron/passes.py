"""The part of a pass for one rank: a replica's ranks see the same sequences, which context parallelism cuts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.utils import get_batch_on_this_cp_rank
from torch.nn import functional

from llmexp.launchers.data.sequences import IGNORED
from llmexp.launchers.megatron.chunked_loss import chunked_loss_of
from llmexp.measure.batch import MicroBatch


@dataclass(frozen=True)
class PassShare:
    """The input ids, the tokens that follow them and whether those count, all [micro, seq_len / cp].

    `counted` is the number of tokens that count in whole sequences.
    """

    ids: torch.Tensor
    targets: torch.Tensor
    counts: torch.Tensor
    counted: torch.Tensor

    @classmethod
    def of(cls, batch: MicroBatch) -> PassShare:
        """Return this rank's share of a pass."""
        targets = functional.pad(batch.labels[:, 1:], (0, 1), value=IGNORED)
        counts = targets != IGNORED
        cut = get_batch_on_this_cp_rank({"ids": batch.input_ids, "targets": targets.clamp(min=0), "counts": counts})
        return cls(**cut, counted=counts.sum())

    def through(self, stage: DistributedDataParallel) -> torch.Tensor:
        """Return a stage's output.

        The last stage gives the loss at every position, [micro, seq_len / cp], or in chunks that of all; others give
        the next stage's input.
        """
        if chunked := chunked_loss_of(stage):
            chunked.shares = self.counts / self.counted
        output: torch.Tensor = stage(self.ids, None, None, labels=self.targets)
        return output

    def loss(self, losses: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the mean over the tokens that count.

        The parts of a replica's context-parallel ranks add up to the mean.
        """
        return losses if losses.dim() == 0 else (losses * self.counts).sum() / self.counted
