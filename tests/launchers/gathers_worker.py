"""A worker (in_turn.py): the bytes that a rank gathers and adds up in the update of its second step."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import stepping
import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from llmexp.measure.loop import train_step
from llmexp.training.plan.training_plan import TrainingPlan

COUNTED = ("all_gather_into_tensor", "all_reduce")


class Collectives(TorchDispatchMode):
    """The bytes of what the collectives of partitioned tensors return."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = defaultdict(int)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented
        returned = func(*args, **(kwargs or {}))
        if func.namespace == "_c10d_functional" and (name := str(func).split(".")[1]) in COUNTED:
            self.sizes[name] += returned.nbytes
        return returned


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    batches, update, found = (
        stepping.batches_of(plan, training, 2, device),
        training.layout.optimizer.step,
        Collectives(),
    )
    train_step(training, next(batches), lambda _: None)

    def counted() -> None:
        with found:
            update()

    training.layout.optimizer.step = counted
    train_step(training, next(batches), lambda _: None)
    return dict(found.sizes)
