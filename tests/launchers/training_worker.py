"""Run by torchrun: trains each plan named on the command line in turn, on whichever engine, and writes the losses of its steps as JSON.

Arguments: the output file, then plan files of one engine and world size. One process for all plans, because starting ranks costs more than training.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from llmexp.launchers import data
from llmexp.launchers.rank import device_of
from llmexp.measure.loop import train_step
from llmexp.plan.run_plan import RunPlan

STEPS = 3


def train(plan: RunPlan, training: Any, device: torch.device) -> list[float]:
    """The mean loss over all replicas, a step."""
    sequences = data.load(plan.config.data, training.vocab_size, STEPS * plan.batch.global_, plan.config.seed)
    batches = data.batches(sequences, plan.dims.replica_of(torch.distributed.get_rank()), plan.dims.dp, plan.batch, device)
    losses = []
    for _ in range(STEPS):
        mean = torch.stack(list(train_step(training, next(batches), lambda _: None))).double().mean()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / plan.dims.world_size)
    return losses


def forget_groups() -> None:
    if "megatron.core" in sys.modules:
        from megatron.core import parallel_state

        parallel_state.destroy_model_parallel()


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
        forget_groups()
    target.with_suffix(f".{torch.distributed.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
