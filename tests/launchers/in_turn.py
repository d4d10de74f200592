"""Ranks for the tests of this folder: each observes all plans in turn, as starting a rank costs more than training.

On CPUs they are forked from this process, which has imported what they need once for all orders.

An order is a line of JSON on the standard input: `words`, the worker's module, the number of ranks, the output file,
then plan files of one engine and world size; `environment`; `log`, a file for what is printed. The answer is a line
with the exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

from llmexp.launchers.rank.starting import begin_imports, end_imports
from llmexp.training.plan.training_plan import TrainingPlan

# Seconds after which an order is given up.
PATIENCE_S = 900


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        plans = {Path(path).stem: TrainingPlan.read(Path(path)) for path in order["words"][3:]}
        # The engine's worker stands before the folder in its command.
        names = order["words"][0], next(iter(plans.values())).command.argv[-2]
        _import([*names, *["bitsandbytes"] * any("Q" in plan.method for plan in plans.values())])
        child = os.fork()
        if not child:
            _carry_out(order, names, plans)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _import(names: Iterable[str]) -> None:
    begin_imports()
    for name in names:
        importlib.import_module(name)
    end_imports()


def _carry_out(order: Mapping[str, Any], names: tuple[str, str], plans: Mapping[str, TrainingPlan]) -> NoReturn:
    signal.alarm(PATIENCE_S)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv[1:] = order["words"]
    try:
        _start(names, plans)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _start(names: tuple[str, str], plans: Mapping[str, TrainingPlan]) -> None:
    from torch import multiprocessing

    ranks, target = sys.argv[2:4]
    first = next(iter(plans.values()))
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
    }
    # After a library has looked for GPUs here, a forked rank could not use them.
    method = "fork" if first.config.hardware.device == "cpu" else "spawn"
    multiprocessing.start_processes(_run, (names, plans, Path(target)), nprocs=int(ranks), start_method=method)


def _run(rank: int, names: Sequence[str], plans: Mapping[str, TrainingPlan], target: Path) -> None:
    import torch

    from llmexp.launchers.rank.frame import device_of

    signal.alarm(PATIENCE_S)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    worker, launcher = (importlib.import_module(name) for name in names)
    device = device_of(next(iter(plans.values())).config.hardware, rank)
    launcher.join(device)
    found = {}
    for name, plan in plans.items():
        torch.compiler.reset()  # each plan compiles for itself, as in a process of its own
        with getattr(worker, "watching", nullcontext)():
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
