"""Ranks for the tests of this folder: each observes all plans in turn, because starting a rank costs more than training.

On CPUs they are forked from this process, which has imported what they need once for all of them.

Arguments: the worker's module, the number of ranks, the output file, then plan files of one engine and world size.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from pathlib import Path

from llmexp.launchers.starting import begin_imports, end_imports
from llmexp.plan.run_plan import RunPlan


def main() -> None:
    worker, ranks, target, *paths = sys.argv[1:]
    plans = {Path(path).stem: RunPlan.read(Path(path)) for path in paths}
    first = next(iter(plans.values()))
    begin_imports()
    # The engine's worker stands before the folder in its command.
    names = worker, first.command.argv[-2]
    for name in names:
        importlib.import_module(name)
    end_imports()
    from torch import multiprocessing

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    # After a library has looked for GPUs here, a forked rank could not use them.
    method = "fork" if first.config.hardware.device == "cpu" else "spawn"
    multiprocessing.start_processes(_run, (names, plans, Path(target)), nprocs=int(ranks), start_method=method)


def _run(rank: int, names: tuple[str, str], plans: dict[str, RunPlan], target: Path) -> None:
    import torch

    from llmexp.launchers.rank import device_of

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    worker, launcher = (importlib.import_module(name) for name in names)
    device = device_of(next(iter(plans.values())).config.hardware, rank)
    launcher.join(device)
    found = {}
    for name, plan in plans.items():
        torch.compiler.reset()  # each plan compiles for itself, as in a process of its own
        found[name] = worker.observe(plan, launcher.build(plan, device), device)
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
