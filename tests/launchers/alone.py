"""What every layout is held against: one plain process, without any engine, on the same weights and sequences."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from llmexp.launchers.data import loader
from llmexp.launchers.models import building
from llmexp.launchers.models.weights import weights_of
from llmexp.measure.dtypes import torch_dtype
from llmexp.method import Method
from llmexp.training.plan.training_plan import TrainingPlan

STEPS = 4
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Alone:
    """Of each step its loss and gradient norm; the norm of each parameter after the last update, by name."""

    losses: list[float]
    gradient_norms: list[float]
    parameter_norms: dict[str, float]


def train_alone(plan: TrainingPlan) -> Alone:
    """A plain loop on transformers' model; `plan` is of one replica."""
    config, passes = plan.config, plan.batch.accumulation
    shape = building.configuration(config.model)
    quantization = Method.parse(plan.method, config.task.name).techniques.quantization
    dtype = torch_dtype(config.precision.parameters)
    model = building.build(shape, dtype, "eager", device=CPU, weights=weights_of(config), quantization=quantization)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, **config.optimizer.arguments)
    sequences = loader.load(config.data, shape.vocab_size, STEPS * plan.batch.global_, config.seed)
    batches = loader.batches(sequences, 0, 1, plan.batch, CPU)
    losses, norms = [], []
    for _ in range(STEPS):
        step = []
        for batch in next(batches):
            loss = model(input_ids=batch.input_ids, labels=batch.labels).loss
            (loss / passes).backward()
            step.append(loss.item())
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None]).item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(step) / passes)
    return Alone(
        losses,
        norms,
        {
            name: parameter.detach().norm().item()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        },
    )
