"""kernels.chunked_loss of megatron-core's model: its last stage gives the loss of a pass, not that of each position."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from megatron.core.models.gpt import GPTModel
from megatron.core.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from torch import nn

from llmexp.launchers.models.loss_in_chunks import Cut, Targets, loss_in_chunks
from llmexp.record.what_ran import WhatRan


class ChunkedLoss:
    """What stands between a stage's hidden states and their loss; `shares` are of the pass that runs."""

    shares: torch.Tensor | None = None
    chunks: int = 0

    def __init__(self, stage: GPTModel) -> None:
        self._head: nn.Module = stage.output_layer
        self._weight: torch.Tensor | None = None
        parts = get_tensor_model_parallel_world_size()
        self._cut = Cut(get_tensor_model_parallel_group(), get_tensor_model_parallel_rank()) if parts > 1 else None
        self._in_parts = stage.config.sequence_parallel
        stage.output_layer.forward = self._hidden_states
        stage.compute_language_model_loss = self._loss
        stage.chunked_loss = self

    def _hidden_states(
        self, hidden: torch.Tensor, weight: torch.Tensor | None = None, **_: Any
    ) -> tuple[torch.Tensor, None]:
        """Stand for the head, whose weight may be the embedding's; its module still runs, with an engine's hooks."""
        self._weight = self._head.get_parameter("weight") if weight is None else weight
        return hidden if self._cut is None else self._whole(hidden), None

    def _whole(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states of all positions; backward adds up the gradients of the head's parts."""
        if self._in_parts:
            return gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=True)
        return copy_to_tensor_model_parallel_region(hidden)

    def _loss(self, labels: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return the loss of hidden states [seq, micro, hidden_size] with labels [micro, seq]."""
        assert self.shares is not None
        assert self._weight is not None
        targets = Targets(labels.t().flatten(), self.shares.t().flatten())
        loss, self.chunks = loss_in_chunks(hidden, self._weight, targets, self._cut)
        return loss


def chunked_loss_of(stage: nn.Module) -> ChunkedLoss | None:
    """Return what a stage in Megatron's data parallelism computes its loss by; None where each position has its own."""
    found: ChunkedLoss | None = getattr(stage.module, "chunked_loss", None)
    return found


def chunks_that_ran(stages: Iterable[nn.Module]) -> WhatRan:
    """Say, for what_ran, in how many chunks the last pass of this rank's stages computed its loss."""
    made = next((each for each in map(chunked_loss_of, stages) if each), None)
    return {"loss_chunks": made.chunks} if made else {}
