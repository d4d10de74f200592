"""A worker (in_turn.py): the rotary frequencies that each plan's model has, once the engine has taken it."""

from __future__ import annotations

from typing import Any

import torch

from llmexp.training.plan.training_plan import TrainingPlan


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    found = [buffer for name, buffer in training.module.named_buffers() if name.endswith(".inv_freq")]
    return {"frequencies": [frequencies.tolist() for frequencies in found]}
