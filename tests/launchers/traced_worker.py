"""A worker (in_turn.py): the tracer on a rank whose tensors have content, among ranks that do what it does."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from llmexp.launchers.tracing.tracer import trace
from llmexp.training.plan.training_plan import TrainingPlan


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    build = importlib.import_module(plan.command.argv[-2]).build
    return trace(plan, build, lambda _: None).model_dump()
