"""A worker (in_turn.py): the tracer on a rank whose tensors have content, among ranks that do what it does.

Gloo holds what it has sent until its thread gets to run, and then a moment is fuller than it has to be. So the leanest
of several traces is taken for each moment.
"""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any

import torch

from llmexp.launchers.tracing.tracer import trace
from llmexp.training.plan.traced_memory import TracedMemory, TracedStep
from llmexp.training.plan.training_plan import TrainingPlan

TRACES = 5


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    build = importlib.import_module(plan.command.argv[-2]).build
    traces = [trace(plan, build, lambda _: None) for _ in range(TRACES)]
    steps = tuple(leanest(step) for step in zip(*(each.steps for each in traces), strict=True))
    return TracedMemory(**{**traces[0].model_dump(), "steps": steps}).model_dump()


def leanest(step: tuple[TracedStep, ...]) -> TracedStep:
    return TracedStep(
        **{
            moment: min((getattr(each, moment) for each in step), key=attrgetter("together"))
            for moment in ("forward_end", "passes", "update")
        }
    )
