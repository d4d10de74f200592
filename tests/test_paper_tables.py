"""The paper's tables with their 22 and 18 methods, on real ranks, as a person types it.

Each method is measured, recorded and in the table.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG_S

from chaos.invariants import store_equals_folders
from llmexp.record.digits import rounded
from llmexp.record.folder import find_runs

pytestmark = pytest.mark.sweep
WORDS = ("model=tiny", "measure=smoke", "measure.profile=false", "hardware=cpu", "-m")


@pytest.mark.parametrize(
    ("experiment", "task", "methods"), [("paper_table03", "pretrain", 22), ("paper_table09", "finetune", 18)]
)
def test_all_methods_run_on_two_cpu_ranks_are_tracked_and_end_with_their_table(
    tmp_path: Path, experiment: str, task: str, methods: int
) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")} | {
        "CUDA_VISIBLE_DEVICES": ""
    }
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", f"experiment={experiment}", *WORDS],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    sweep = tmp_path / "outputs" / experiment
    found = {result.method: result for folder in find_runs(sweep) if (result := folder.result())}
    assert len(found) == methods
    for method, result in found.items():
        assert (result.task, result.status, result.processes, result.evidence) == (task, "success", 2, "measured"), (
            result.reason
        )
        assert ("flash" in result.what_ran["attention_kernel"]) == ("F" in method.split("+"))
        tokens_per_s, state_bytes = result.metrics["tokens_per_s"], result.metrics["training_state_bytes"]
        assert tokens_per_s is not None
        assert state_bytes is not None
        assert f"{rounded(tokens_per_s.mean)} ±" in done.stdout
        assert {method, f"{method}†"} & set(done.stdout.split())
        assert state_bytes.mean <= 16.1 * (857_216 + 591_872 * (task == "finetune"))
    assert "to repeat a run, add its method, such as method=" in done.stdout
    assert "llmexp ui" in done.stdout.splitlines()[-1]
    assert list(store_equals_folders(f"sqlite:///{tmp_path}/outputs/mlflow.db", "llmexp", sweep)) == []
