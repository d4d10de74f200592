"""What the workers of these tests share: plans observed in turn, all by one process, because starting ranks costs more than training.

A worker is run by torchrun; its arguments are the output file, then plan files of one engine and world size.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from llmexp.launchers import data
from llmexp.launchers.rank import device_of
from llmexp.measure.loop import MicroBatch
from llmexp.plan.run_plan import RunPlan


def observe_each(observe: Callable[[RunPlan, Any, torch.device], Any]) -> None:
    """Build what each plan says, and write as JSON what `observe` returns of it."""
    target, plans = Path(sys.argv[1]), {Path(path).stem: RunPlan.read(Path(path)) for path in sys.argv[2:]}
    first = next(iter(plans.values()))
    # The engine's worker stands before the folder in its command.
    launcher = importlib.import_module(first.command.argv[-2])
    device = device_of(first.config.hardware, int(os.environ["LOCAL_RANK"]))
    launcher.join(device)
    # What the libraries hold by now they keep: looking through it after every plan would take a sixth of the time.
    gc.freeze()
    found = {}
    for name, plan in plans.items():
        torch.compiler.reset()  # each plan compiles for itself, as in a process of its own
        found[name] = observe(plan, launcher.build(plan, device), device)
        gc.collect()
        _forget_groups()
    target.with_suffix(f".{distributed.get_rank()}.json").write_text(json.dumps(found))


def batches_of(plan: RunPlan, training: Any, steps: int, device: torch.device) -> Iterator[Sequence[MicroBatch]]:
    """This rank's passes of each step."""
    sequences = data.load(plan.config.data, training.vocab_size, steps * plan.batch.global_, plan.config.seed)
    return data.batches(sequences, plan.dims.replica_of(distributed.get_rank()), plan.dims.dp, plan.batch, device)


def mean_loss(losses: Iterable[torch.Tensor]) -> float:
    """Of a step's passes on all ranks."""
    mean = torch.stack(list(losses)).double().mean()
    distributed.all_reduce(mean)
    return float(mean.item()) / distributed.get_world_size()


def _forget_groups() -> None:
    if "megatron.core" in sys.modules:
        from megatron.core import parallel_state

        parallel_state.destroy_model_parallel()
