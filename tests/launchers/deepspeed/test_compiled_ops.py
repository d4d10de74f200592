"""Real ranks on a machine that has no compiler in PATH and a torch cache full of locks that killed builds left."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import HANG_S
from planning import make_plan

from llmexp.launch.ranks import LOOPBACK, listening
from llmexp.launchers.deepspeed import OP_LIBRARY_VARIABLE
from llmexp.launchers.deepspeed.build import prepare_ops
from llmexp.record.result import to_json
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


@pytest.fixture
def what_ran(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run a plan's own command in such a place; return what rank 0 says that ran."""

    def run(plan: TrainingPlan, **environment: str) -> dict[str, Any]:
        repeat = tmp_path / "run" / "repeat.0"
        repeat.mkdir(parents=True)
        (repeat.parent / "plan.json").write_text(to_json(plan))
        for op in ("deepspeed_shm_comm", "fused_adam", "cpu_adam"):
            (tmp_path / "extensions" / op).mkdir(parents=True)
            (tmp_path / "extensions" / op / "lock").touch()
        place = {"PATH": str(tmp_path), "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions"), "OMP_NUM_THREADS": "1"}
        with listening(LOOPBACK, 0) as free:
            port = free.getsockname()[1]
        command = plan.command.words(folder=repeat, address=LOOPBACK, port=port, node=0)
        done = subprocess.run(
            command, env={**os.environ, **place, **environment}, capture_output=True, text=True, timeout=HANG_S
        )
        assert done.returncode == 0, (repeat / "log.0.txt").read_text()[-4000:]
        found: dict[str, Any] = json.loads((repeat / "rank.0.json").read_text())["what_ran"]
        return found

    return run


def tiny(*overrides: str) -> TrainingPlan:
    return make_plan(
        "hardware=cpu", "parallelism.dp=2", "data.seq_len=16", "measure=smoke", "measure.profile=false", *overrides
    )


def test_torchs_optimizers_need_no_compiler(what_ran: Callable[..., dict[str, Any]]) -> None:
    assert what_ran(tiny("method=Z2+O"))["optimizer_class"] == "torch.optim.adamw.AdamW"


@pytest.mark.sweep
def test_deepspeeds_adam_is_compiled_before_the_ranks_start(
    what_ran: Callable[..., dict[str, Any]], pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pytestconfig.cache
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytestconfig.cache.mkdir("xdg")))
    plan = tiny("method=Z2+O", "optimizer=deepspeed_adamw")
    variables = prepare_ops(plan)
    assert set(variables) == {OP_LIBRARY_VARIABLE}
    assert what_ran(plan, **variables)["optimizer_class"] == "deepspeed.ops.adam.cpu_adam.DeepSpeedCPUAdam"
