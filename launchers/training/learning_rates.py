"""The learning rates of a run's steps, by transformers' schedulers, for the optimizer of any engine."""

from __future__ import annotations

from typing import Any

import torch

from llmexp.launchers.training.engine_kinds import Built, TellsUpdates
from llmexp.launchers.training.loss_scaling import ScalesLoss
from llmexp.training.config import OptimizerConfig
from llmexp.training.plan.rate_schedule import decay_steps, has_schedule, scheduled_steps
from llmexp.training.plan.training_plan import TrainingPlan


class StepUpdates:
    """Sets the learning rate before each step, and tells what the update went by."""

    def __init__(self, plan: TrainingPlan, engine: TellsUpdates) -> None:
        self._engine, self._taken = engine, 0
        optimizer = plan.config.optimizer
        self._shares = shares(optimizer, scheduled_steps(plan.config)) if has_schedule(optimizer) else []
        self._rates = [group["lr"] for group in engine.parameter_groups()]

    def begin(self) -> None:
        """Set the rate of the next step; after the schedule's end it stays the last one."""
        if not self._shares:
            return
        share = self._shares[min(self._taken, len(self._shares) - 1)]
        self._taken += 1
        for group, rate in zip(self._engine.parameter_groups(), self._rates, strict=True):
            group["lr"] = rate * share

    def rate(self) -> float:
        """Return the learning rate that the optimizer has."""
        return float(self._engine.parameter_groups()[0]["lr"])

    def gradient_norm(self) -> torch.Tensor | float | None:
        """Return the norm of the last step's gradient before clipping; None where nobody has computed it."""
        return self._engine.norm_of_step()

    def scaled_step(self) -> tuple[float, bool] | None:
        """Return the factor of the last step's losses, and whether its update was skipped; None without a factor."""
        return self._engine.scaled_step() if isinstance(self._engine, ScalesLoss) else None


def updates_of(plan: TrainingPlan, engine: Built) -> StepUpdates | None:
    """Return what sets and tells an engine's updates; None for one that tells nothing, whose plans ask for nothing."""
    return StepUpdates(plan, engine) if isinstance(engine, TellsUpdates) else None


def shares(optimizer: OptimizerConfig, steps: int) -> list[float]:
    """Return the rate of each step as a share of optimizer.lr.

    The first step of transformers' warm-ups, whose rate is 0, is left out: no step is lost.
    """
    from transformers import get_scheduler  # only a schedule needs it

    left_out = 1 if optimizer.warmup_steps else 0
    words: dict[str, Any] = {"num_warmup_steps": optimizer.warmup_steps + left_out}
    name, more = _scheduler(optimizer, steps)
    rates = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = get_scheduler(name, rates, num_training_steps=steps + left_out, scheduler_specific_kwargs=more, **words)
    found = []
    for _ in range(steps + left_out):
        found.append(float(scheduler.get_last_lr()[0]))
        rates.step()  # torch warns of a scheduler that steps before its optimizer
        scheduler.step()
    return found[left_out:]


def _scheduler(optimizer: OptimizerConfig, steps: int) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of transformers' scheduler."""
    last = optimizer.final_lr_share
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "constant": ("constant_with_warmup", {}),
        "linear": ("polynomial", {"lr_end": last, "power": 1.0}),
        "cosine": ("cosine_with_min_lr", {"min_lr_rate": last}),
        "wsd": (
            "warmup_stable_decay",
            {"num_decay_steps": decay_steps(optimizer, steps), "min_lr_ratio": last, "decay_type": "linear"},
        ),
    }
    return kinds[optimizer.schedule]
