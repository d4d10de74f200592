"""A worker (in_turn.py): the losses of each plan's steps, on whichever engine."""

from __future__ import annotations

from typing import Any

import in_turn
import torch

from llmexp.measure.loop import train_step
from llmexp.plan.run_plan import RunPlan

STEPS = 3


def losses(plan: RunPlan, training: Any, device: torch.device) -> list[float]:
    """The mean over all replicas, a step."""
    batches = in_turn.batches_of(plan, training, STEPS, device)
    return [in_turn.mean_loss(train_step(training, next(batches), lambda _: None)) for _ in range(STEPS)]


if __name__ == "__main__":
    in_turn.observe_each(losses)
