"""A worker (in_turn.py): what lives in a rank at each moment of its second step, when moments are there.

Beside it is what is counted in the first step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import stepping
import torch
from living import Living
from torch.optim.optimizer import register_optimizer_step_pre_hook

from llmexp.launchers.training.state_watch import StateWatch
from llmexp.training.plan.training_plan import TrainingPlan

WATCHING: list[Living] = []
# Memory that DeepSpeed pinned: the host's, which on a CPU rank nothing else tells from the device's.
PINNED: list[torch.UntypedStorage] = []


@contextmanager
def watching() -> Iterator[None]:
    """From before the engine is built."""
    PINNED.clear()
    with pytest.MonkeyPatch.context() as patch, Living() as living:
        if "deepspeed" in sys.modules:
            patch.setattr(sys.modules["deepspeed"].accelerator.get_accelerator(), "pin_memory", pinned)
        WATCHING[:] = [living]
        yield


def pinned(tensor: torch.Tensor, align_bytes: int = 1) -> torch.Tensor:
    PINNED.append(tensor.untyped_storage())
    return tensor


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    (living,), batches, watch = WATCHING, stepping.batches_of(plan, training, 2, device), StateWatch(training, device)
    for batch in next(batches):
        watch.backward(watch.forward(batch))
        watch.step()
    moments, living.peak = {"forward": 0, "backward": 0, "update": 0}, 0

    def note(moment: str) -> None:
        time.sleep(0.05)  # Gloo's threads hold what they have sent for a moment longer
        moments[moment] = max(moments[moment], living.bytes())

    handle = register_optimizer_step_pre_hook(lambda *_: note("update"))
    for batch in next(batches):
        loss = training.forward(batch)
        note("forward")
        training.backward(loss)
        del loss
        note("backward")
        training.step()
    handle.remove()
    return {
        "living": moments | {"peak": living.peak},
        "state": {kind: size.model_dump() for kind, size in watch.count.state.items()},
        "parameters": training.parameters,
        "partitions": partitions(training.module),
    }


def partitions(module: torch.nn.Module) -> dict[str, int]:
    """Bytes of ZeRO-3's by where DeepSpeed has put them."""
    host = {storage.data_ptr() for storage in PINNED}
    shares = [parameter.ds_tensor for parameter in module.parameters() if hasattr(parameter, "ds_tensor")]
    found = {"host": 0, "device": 0}
    for share in shares:
        found["host" if share.untyped_storage().data_ptr() in host else "device"] += share.nbytes
    return found
