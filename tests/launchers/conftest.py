from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from planning import Measurement

from llmexp.launchers.deepspeed.build import prepare_ops
from llmexp.record.result import to_json
from llmexp.training.plan.training_plan import TrainingPlan

IN_TURN = Path(__file__).parent / "in_turn.py"
Server = subprocess.Popen[str]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Use one thread: tiny matrices gain nothing by several, which wait for each other in a loop.

    Beside other programs that is nine tenths of a test's time.
    """
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def alone() -> Iterator[None]:
    """This process is a group of one rank."""
    from torch import distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture(scope="session")
def server_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[TrainingPlan], Server]]:
    """Give the process that has imported a plan's engine, from which the ranks of all its tests are forked."""
    started: dict[str, Server] = {}
    log = tmp_path_factory.mktemp("servers") / "log.txt"

    def serve(plan: TrainingPlan) -> Server:
        launcher = plan.command.argv[-2]
        if launcher not in started:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", **plan.command.env}
            with log.open("a") as errors:
                pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
                started[launcher] = subprocess.Popen(
                    [sys.executable, str(IN_TURN)], text=True, env=environment, **pipes
                )
        return started[launcher]

    yield serve
    for server in started.values():
        server.communicate()


@pytest.fixture(scope="module")
def asked(request: pytest.FixtureRequest) -> set[str]:
    """Which parameters called `name` or `method` this session tests in the file: no other run has to be made for it."""
    chosen = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    return {params[name] for params in chosen for name in ("name", "method") if name in params}


@pytest.fixture(scope="session")
def observe(
    tmp_path_factory: pytest.TempPathFactory, server_of: Callable[[TrainingPlan], Server]
) -> Callable[..., Measurement]:
    """Train methods on real ranks and return what each rank observed, by the name of the plan."""

    def run(plans: dict[str, TrainingPlan], ranks: int = 2, worker: str = "methods_worker") -> Measurement:
        folder = tmp_path_factory.mktemp("methods")
        for name, plan in plans.items():
            (folder / f"{name}.json").write_text(to_json(plan))
        first, log = next(iter(plans.values())), folder / "log.txt"
        words = [worker, str(ranks), str(folder / "observed"), *(str(folder / f"{name}.json") for name in plans)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **prepare_ops(first), **first.command.env}
        server = server_of(first)
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps({"words": words, "environment": environment, "log": str(log)}), file=server.stdin, flush=True)
        code = server.stdout.readline().strip()
        assert code == "0", f"exit code {code}: {log.read_text()[-4000:] if log.exists() else 'nothing was printed'}"
        observed = [json.loads((folder / f"observed.{rank}.json").read_text()) for rank in range(ranks)]
        return {name: [rank[name] for rank in observed] for name in plans}

    return run
