"""A worker (in_turn.py): trains each plan for a few steps and observes what its optimizer did and held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stepping
import torch

from llmexp.launchers.models import assembly
from llmexp.launchers.training.state_watch import watch_over
from llmexp.measure.loop import train_step
from llmexp.training.plan.training_plan import TrainingPlan

STEPS = 4


def most_held_in_backward(training: Any) -> Callable[[], int]:
    """Watches the bytes of all gradients there are, each time that one more comes."""
    parameters, most = assembly.trained(training.module), 0

    def look(gradient: torch.Tensor) -> None:
        nonlocal most
        held = sum(parameter.grad.nbytes for parameter in parameters if parameter.grad is not None)
        most = max(most, held + gradient.nbytes)

    for parameter in parameters:
        parameter.register_hook(look)
    return lambda: most


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    batches, watch, held = (
        stepping.batches_of(plan, training, STEPS, device),
        watch_over(training, device),
        most_held_in_backward(training),
    )
    losses = [
        stepping.mean_loss(train_step(watch if step == 0 else training, next(batches), lambda _: None))
        for step in range(STEPS)
    ]
    return {
        "losses": losses,
        "state": {kind: size.device + size.host for kind, size in watch.count.state.items()},
        "most_gradient_bytes": held(),
        "largest_gradient_bytes": max(parameter.nbytes for parameter in assembly.trained(training.module)),
        "trainable_parameters": training.trainable_parameters,
        "what_ran": training.what_ran(),
    }
