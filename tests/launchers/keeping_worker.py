"""Run by torchrun: trains each plan named on the command line, measures its loss once more without an update, and saves what it keeps.

Arguments: the output file, then plan files of one engine. Weights go to repeat.0 in a folder beside each plan, of its name.
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
from llmexp.launchers.assembly import method_of
from llmexp.launchers.rank import Rank, device_of
from llmexp.launchers.saving import Saving
from llmexp.launchers.weights import weights_that_ran
from llmexp.measure.loop import train_step
from llmexp.plan.kept import kept_weights
from llmexp.plan.run_plan import RunPlan

STEPS = 2


def train(plan: RunPlan, training: Any, device: torch.device) -> list[float]:
    """The mean loss over all replicas of each step, and at last of the first batch again."""
    sequences = data.load(plan.config.data, training.vocab_size, STEPS * plan.batch.global_, plan.config.seed)
    replica = plan.dims.replica_of(torch.distributed.get_rank())
    batches = data.batches(sequences, replica, plan.dims.dp, plan.batch, device)
    losses = [average(train_step(training, next(batches), lambda _: None)) for _ in range(STEPS)]
    (batch,) = next(data.batches(sequences, replica, plan.dims.dp, plan.batch, device))
    loss = training.forward(batch)
    training.backward(loss)
    return [*losses, average([loss.detach()])]


def average(losses: Any) -> float:
    mean = torch.stack(list(losses)).double().mean()
    torch.distributed.all_reduce(mean)
    return float(mean.item()) / torch.distributed.get_world_size()


def main() -> None:
    target, plans = Path(sys.argv[1]), {Path(path).stem: RunPlan.read(Path(path)) for path in sys.argv[2:]}
    first = next(iter(plans.values()))
    # The engine's worker stands before the folder in its command.
    launcher = importlib.import_module(first.command.argv[-2])
    device = device_of(first.config.hardware, int(os.environ["LOCAL_RANK"]))
    launcher.join(device)
    found = {}
    for name, plan in plans.items():
        training = launcher.build(plan, device)
        losses = train(plan, training, device)
        rank = Rank.from_environment(target.parent / name / "repeat.0")
        saved = Saving(plan, rank, training.module, device).save(kept_weights(plan.config, method_of(plan).techniques))
        found[name] = {"losses": losses, **saved, **weights_that_ran(plan.config), "folder": str(rank.folder)}
        del training
        gc.collect()
    target.with_suffix(f".{torch.distributed.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
