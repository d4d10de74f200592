"""What a rank of an engine that orders its passes itself does in a few steps, for the workers of the tests."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import stepping
import torch
from alone import STEPS
from torch import nn

from llmexp.launchers.training.state_watch import ScheduleWatch
from llmexp.measure.kernels import KernelProbe
from llmexp.measure.loop import train_step
from llmexp.training.plan.training_plan import TrainingPlan


def train(
    training: Any, layers: Iterable[nn.Module], plan: TrainingPlan, device: torch.device, *, profiled: bool = True
) -> dict[str, Any]:
    """STEPS steps, of which the first has its state and its operators counted.

    `layers` are modules that each decoder layer calls once.
    """
    calls, phases, losses = {"layers": 0}, [], []
    for layer in layers:
        layer.register_forward_pre_hook(lambda *_: calls.update(layers=calls["layers"] + 1))
    batches = stepping.batches_of(plan, training, STEPS, device)
    watch, probe = ScheduleWatch(training, device), KernelProbe()
    with probe.watch() if profiled else nullcontext():
        losses.append(train_step(watch, next(batches), lambda _: None))
    calls_per_step, norm = calls["layers"], training.gradient_norm()
    losses.append(train_step(training, next(batches), phases.append))
    losses += [train_step(training, next(batches), lambda _: None) for _ in range(STEPS - 2)]
    return {
        "losses": [torch.stack(list(each)).mean().item() for each in losses],
        "phases": phases,
        "layer_calls": calls_per_step,
        "attention_kernel": probe.attention,
        "operators": probe.names,
        "largest_update": watch.count.largest_update,
        "gradient_norm": norm,
        "state": {kind: size.device for kind, size in watch.count.state.items()},
        "what_ran": training.what_ran(),
    }
