from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from planning import Observed

from llmexp.launch.ops import prepare_ops
from llmexp.plan.run_plan import RunPlan
from llmexp.record.result import to_json

IN_TURN = Path(__file__).parent / "in_turn.py"


@pytest.fixture(scope="session")
def observe(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Observed]:
    """Train methods on real ranks and return what each rank observed, by the name of the plan."""

    def run(plans: dict[str, RunPlan], ranks: int = 2, worker: str = "methods_worker") -> Observed:
        folder = tmp_path_factory.mktemp("methods")
        for name, plan in plans.items():
            (folder / f"{name}.json").write_text(to_json(plan))
        first = next(iter(plans.values()))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **prepare_ops(first), **first.command.env}
        command = [sys.executable, str(IN_TURN), worker, str(ranks), str(folder / "observed"), *(str(folder / f"{name}.json") for name in plans)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]
        observed = [json.loads((folder / f"observed.{rank}.json").read_text()) for rank in range(ranks)]
        return {name: [rank[name] for rank in observed] for name in plans}

    return run
