"""A sweep to which everything happens, and the one command that ends it."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from mlflow import MlflowClient

from llmexp.record.folder import RunFolder, find_runs
from llmexp.slurm.jobs import submissions

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

ATTEMPTS = {"well": 1, "broken_at_first": 2, "deaf_at_first": 2, "again": 2}
SEEDS = 15


def test_sixty_runs_end_after_one_resume(shell, cluster, until):
    words = (",".join(ATTEMPTS), f"seed=range(0,{SEEDS})", "tracking=mlflow")
    outputs = shell.folder / "outputs"
    driver = shell.start_sweep(*words)
    until(lambda: driver.poll() is None and len(submissions(find_runs(outputs))) == 60)
    runs = find_runs(outputs)
    until(lambda: sum(run.result() is not None for run in runs) >= 20, 300)
    driver.kill()

    waiting = [one for one in submissions(runs) if behavior(one.folder) == "again"]
    until(lambda: sum(has_begun(one.folder) for one in waiting) >= 8, 300)
    cancelled = [one for one in waiting if has_begun(one.folder)][:8]
    preempted = [one for one in waiting if one not in cancelled]
    cluster.run("scancel", *(one.job.number for one in cancelled))
    until(lambda: all(has_begun(one.folder) for one in preempted), 300)
    until(lambda: set(cluster.run("squeue", "-h", "-r", "-o", "%i").split()) == {one.job.number for one in preempted})
    cluster.run("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 2")
    for one in preempted:
        until(lambda one=one: "PENDING" in cluster.run("squeue", "-h", "-o", "%T", "-j", one.job.number))
        cluster.run(
            "scontrol", "update", f"JobId={one.job}", "StartTime=now"
        )  # SLURM holds what it queues again for two minutes

    done = shell.sweep(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {run.path.name: attempts(run) for run in runs} == {run.path.name: ATTEMPTS[behavior(run)] for run in runs}
    right = {run.result().id: ("success", pytest.approx(scripted_rate(run))) for run in runs}
    assert len(right) == 60
    assert table(outputs) == right
    assert shell.llmexp("sync").returncode == 0
    assert stored(outputs) == right


def behavior(run: RunFolder) -> str:
    return json.loads(run.plan_path.read_text())["config"]["engine"]["options"]["behavior"]


def scripted_rate(run: RunFolder) -> float:
    """Tokens per second as the rank's script has them."""
    return 100 / (0.01 + json.loads(run.plan_path.read_text())["config"]["seed"] / 1000)


def has_begun(run: RunFolder) -> bool:
    return (run.repeat(0) / "samples.0.jsonl").exists()


def attempts(run: RunFolder) -> int:
    return 1 + len(list((run.path / "previous").glob("*")))


def table(outputs: Path) -> dict[str, tuple[str, float]]:
    """State and tokens/s of each run in the sweep's own table."""
    with (outputs / "main" / "report.csv").open() as file:
        return {row["id"]: (row["state"], float(row["tokens_per_s"] or "nan")) for row in csv.DictReader(file)}


def stored(outputs: Path) -> dict[str, tuple[str, float]]:
    """The same as the MLflow store has it."""
    client = MlflowClient(f"sqlite:///{outputs}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("llmexp").experiment_id], "tags.`llmexp.kind` = 'run'")
    found = {
        run.data.tags["id"]: (run.data.tags["status"], run.data.metrics.get("tokens_per_s", math.nan)) for run in runs
    }
    assert len(found) == len(runs)
    return found
