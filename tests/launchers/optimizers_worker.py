"""Run by torchrun: trains each plan named on the command line for a few steps and writes what its optimizer did and held as JSON.

Arguments: the output file, then plan files of one engine and world size. One process for all plans, because starting ranks costs more than training.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from llmexp.launchers import assembly, data
from llmexp.launchers.rank import device_of
from llmexp.launchers.state_watch import watch_over
from llmexp.measure.loop import train_step
from llmexp.plan.run_plan import RunPlan

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


def train(plan: RunPlan, training: Any, device: torch.device) -> dict[str, Any]:
    sequences = data.load(plan.config.data, training.vocab_size, STEPS * plan.batch.global_, plan.config.seed)
    batches = data.batches(sequences, plan.dims.replica_of(torch.distributed.get_rank()), plan.dims.dp, plan.batch, device)
    losses, watch, held = [], watch_over(training, device), most_held_in_backward(training)
    for step in range(STEPS):
        mean = torch.stack(list(train_step(watch if step == 0 else training, next(batches), lambda _: None))).double().mean()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / plan.dims.world_size)
    return {
        "losses": losses,
        "state": {kind: size.device + size.host for kind, size in watch.state.items()},
        "most_gradient_bytes": held(),
        "largest_gradient_bytes": max(parameter.nbytes for parameter in assembly.trained(training.module)),
        "trainable_parameters": training.trainable_parameters,
        "what_ran": training.what_ran(),
    }


def main() -> None:
    target, plans = Path(sys.argv[1]), {Path(path).stem: RunPlan.read(Path(path)) for path in sys.argv[2:]}
    first = next(iter(plans.values()))
    # The engine's worker stands before the folder in its command.
    launcher = importlib.import_module(first.command.argv[-2])
    device = device_of(first.config.hardware, int(os.environ["LOCAL_RANK"]))
    launcher.join(device)
    found = {}
    for name, plan in plans.items():
        found[name] = train(plan, launcher.build(plan, device), device)
        gc.collect()
    target.with_suffix(f".{torch.distributed.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
