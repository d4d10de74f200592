"""A worker (in_turn.py): what updates_worker.py tells, and the weights after the last update, by the model's names."""

from __future__ import annotations

from typing import Any

import torch
import updates_worker
from torch.distributed.tensor import DTensor

from llmexp.training.plan.training_plan import TrainingPlan


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    told = updates_worker.observe(plan, training, device)
    models = [stage.model for stage in training.layout.stages] if plan.dims.pp > 1 else [training.module]
    named = [each for model in models for each in model.named_parameters()]
    return told | {
        "weights": {name: _whole(weight).flatten().tolist() for name, weight in named},
        "trainable_parameters": training.trainable_parameters,
    }


def _whole(weight: torch.Tensor) -> torch.Tensor:
    held = weight.detach()
    return held.full_tensor() if isinstance(held, DTensor) else held
