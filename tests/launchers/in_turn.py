"""Ranks for the tests of this folder: each observes all plans in turn, because starting a rank costs more than training.

They are forked from this process, which has imported what they need once for all of them.

Arguments: the worker's module, the number of ranks, the output file, then plan files of one engine and world size.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmexp.launchers.starting import begin_imports, end_imports
from llmexp.plan.run_plan import RunPlan

Observe = Callable[[RunPlan, Any, Any], Any]


def main() -> None:
    name, ranks, target, *paths = sys.argv[1:]
    plans = {Path(path).stem: RunPlan.read(Path(path)) for path in paths}
    begin_imports()
    observe: Observe = importlib.import_module(name).observe
    # The engine's worker stands before the folder in its command.
    launcher = importlib.import_module(next(iter(plans.values())).command.argv[-2])
    end_imports()
    from torch import multiprocessing

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    multiprocessing.start_processes(_run, (launcher, plans, observe, Path(target)), nprocs=int(ranks), start_method="fork")


def _run(rank: int, launcher: Any, plans: dict[str, RunPlan], observe: Observe, target: Path) -> None:
    import torch

    from llmexp.launchers.rank import device_of

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    device = device_of(next(iter(plans.values())).config.hardware, rank)
    launcher.join(device)
    found = {}
    for name, plan in plans.items():
        torch.compiler.reset()  # each plan compiles for itself, as in a process of its own
        found[name] = observe(plan, launcher.build(plan, device), device)
        gc.collect()
        _forget_groups()
    target.with_suffix(f".{rank}.json").write_text(json.dumps(found))


def _forget_groups() -> None:
    if "megatron.core" in sys.modules:
        from megatron.core import parallel_state

        parallel_state.destroy_model_parallel()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    main()
