"""What the workers of these tests do in each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import distributed

from llmexp.launchers.data import loader
from llmexp.measure.batch import MicroBatch
from llmexp.training.plan.training_plan import TrainingPlan


def batches_of(plan: TrainingPlan, training: Any, steps: int, device: torch.device) -> Iterator[Sequence[MicroBatch]]:
    """This rank's passes of each step."""
    sequences = loader.load(plan.config.data, training.vocab_size, steps * plan.batch.global_, plan.config.seed)
    return loader.batches(sequences, plan.dims.replica_of(distributed.get_rank()), plan.dims.dp, plan.batch, device)


def mean_loss(losses: Iterable[torch.Tensor]) -> float:
    """Of a step's passes on all ranks."""
    mean = torch.stack(list(losses)).double().mean()
    distributed.all_reduce(mean)
    return float(mean.item()) / distributed.get_world_size()
