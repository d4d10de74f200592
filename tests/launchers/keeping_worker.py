"""A worker (in_turn.py): trains, measures the loss once more without an update, and saves what it keeps.

In a folder of each plan beside the output file weights go to repeat.0, and the last logits beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import stepping
import torch

from llmexp.launchers.models.assembly import method_of
from llmexp.launchers.models.weights import weights_that_ran
from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.training.saving import Saving
from llmexp.measure.loop import train_step
from llmexp.training.plan.artifacts import kept_weights
from llmexp.training.plan.training_plan import TrainingPlan

STEPS = 2


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    losses, logits = train(plan, training, device)
    folder = Path(sys.argv[3]).parent / plan.id
    folder.mkdir(exist_ok=True)
    rank = Rank.from_environment(folder / "repeat.0")
    torch.save(logits, folder / f"logits.{rank.index}.pt")
    saved = Saving(plan, rank, training.module, device).save(kept_weights(plan.config, method_of(plan).techniques))
    return {"losses": losses, **saved, **weights_that_ran(plan.config), "folder": str(rank.folder)}


def train(plan: TrainingPlan, training: Any, device: torch.device) -> tuple[list[float], torch.Tensor]:
    """The mean loss of each step, and at last of the first batch again, with this rank's logits then."""
    batches = stepping.batches_of(plan, training, STEPS, device)
    losses = [stepping.mean_loss(train_step(training, next(batches), lambda _: None)) for _ in range(STEPS)]
    (batch,) = next(stepping.batches_of(plan, training, STEPS, device))
    logits: list[torch.Tensor] = []
    hook = training.module.register_forward_hook(
        lambda _module, _inputs, output: logits.append(output.logits.detach().clone())
    )
    loss = training.forward(batch)
    hook.remove()
    training.backward(loss)
    return [*losses, stepping.mean_loss([loss.detach()])], logits[0]
