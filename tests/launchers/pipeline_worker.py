"""A worker (in_turn.py): what a pipeline of engine=torch did of each plan, its gradient norms too."""

from __future__ import annotations

from typing import Any

import scheduled
import torch
from torch import distributed, nn

from llmexp.measure.compilation import Compilation
from llmexp.training.plan.training_plan import TrainingPlan


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    layout, norms = training.layout, []
    update = layout.optimizer.step

    def step() -> None:
        counted = [parameter for parameter in layout.trained if all(parameter is not each for each in layout.repeated)]
        squares = torch.nn.utils.get_total_norm([parameter.grad for parameter in counted]).double() ** 2
        distributed.all_reduce(squares, group=layout.ranks)
        norms.append(squares.sqrt().item())
        update()

    layout.optimizer.step = step
    compiled, before = "C" in plan.method.split("+"), Compilation.so_far()
    layers = [module for name, module in training.module.named_modules() if name.endswith(".mlp") and not compiled]
    observed = scheduled.train(training, layers, plan, device, profiled=not compiled)
    return observed | {
        "gradient_norms": norms,
        "parameter_norms": {name: norm for stage in layout.stages for name, norm in _norms(stage.model)},
        "trainable_parameters": training.trainable_parameters,
        "compiled_graphs": Compilation.so_far().graphs - before.graphs,
        "graph_breaks": Compilation.so_far().graph_breaks - before.graph_breaks,
    }


def _norms(model: nn.Module) -> list[tuple[str, float]]:
    return [
        (name, parameter.detach().norm().item())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
