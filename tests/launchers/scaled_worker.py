"""A worker (in_turn.py): the samples of some steps, how far each moved this rank's parameters, and its products."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import stepping
import torch

from llmexp.launchers.training.learning_rates import updates_of
from llmexp.launchers.training.loss_scaling import scale_that_ran
from llmexp.measure.clock import clock_for
from llmexp.measure.kernels import KernelProbe
from llmexp.measure.loop import StepLoop
from llmexp.training.plan.training_plan import TrainingPlan

TOLD = ("loss", "gradient_norm", "loss_scale", "skipped")


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    file, probe, moved = StringIO(), KernelProbe(), list[float]()
    loop = StepLoop(training, clock_for(device), file, lambda: 0)
    loop.updates = updates_of(plan, training)
    batches = stepping.batches_of(plan, training, plan.config.measure.steps, device)
    with probe.watch():
        for step in range(plan.config.measure.steps):
            before = _parameters(training)
            loop.run(batches, range(step, step + 1), warmup=False)
            moved.append(float(torch.dist(before, _parameters(training))))
    samples = [json.loads(line) for line in file.getvalue().splitlines()]
    told = {name: [sample[name] for sample in samples] for name in TOLD}
    told["scales"] = told.pop("loss_scale")
    return told | {"moved": moved, "products_in": probe.products_in} | scale_that_ran(training)


def _parameters(training: Any) -> torch.Tensor:
    held = training.state_tensors()["parameters"]
    return torch.cat([tensor.detach().float().flatten() for tensor in held])
