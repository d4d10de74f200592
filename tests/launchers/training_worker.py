"""A worker (in_turn.py): the losses of each plan's steps, on whichever engine."""

from __future__ import annotations

from typing import Any

import stepping
import torch

from llmexp.measure.loop import train_step
from llmexp.training.plan.training_plan import TrainingPlan

STEPS = 3


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> list[float]:
    """The mean loss over all replicas, a step."""
    batches = stepping.batches_of(plan, training, STEPS, device)
    return [stepping.mean_loss(train_step(training, next(batches), lambda _: None)) for _ in range(STEPS)]
