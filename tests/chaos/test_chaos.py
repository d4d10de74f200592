"""The fault suite itself: a short form of it, and that it sees a loss."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.invariants import status_is_true, store_equals_folders
from chaos.surroundings import ROOT, Surroundings
from llmexp.launch.attempt import set_aside
from llmexp.record.folder import RunFolder
from llmexp.record.identity import process_identity
from llmexp.record.mlflow import sync
from llmexp.schema import TrackingConfig

FAULTS = 3


@pytest.fixture
def success(tmp_path: Path, tiny_plan, result_of, write_samples) -> RunFolder:
    """A run's folder as a success leaves it, from two ranks of one warm-up and two measured steps."""
    plan = tiny_plan()
    folder = RunFolder(tmp_path / "outputs" / "main" / plan.folder_name)
    folder.write(folder.plan_path, plan)
    folder.event("running")
    for rank in (0, 1):
        write_samples(folder.repeat(0), rank, [(1.0, 2.0)] * 3, warmup=(0,))
        (folder.repeat(0) / f"rank.{rank}.json").touch()
    times = {"started_at": "2026-01-01T00:00:00+00:00", "ended_at": "2026-01-01T00:01:00+00:00"}
    folder.write(folder.result_path, result_of(plan, "success", **times))
    return folder


@pytest.fixture
def surroundings(tmp_path: Path) -> Surroundings:
    return Surroundings(tmp_path / "scratch", tmp_path / "outputs")


@pytest.mark.ranks
def test_a_few_faults_lose_nothing() -> None:
    command = [sys.executable, "-m", "chaos", "--faults", str(FAULTS), "--seed", "11"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"{FAULTS} faults (")
    assert last.endswith("), 4 runs, 0 losses")


def test_a_success_without_its_samples_is_seen(success: RunFolder, surroundings: Surroundings) -> None:
    sweep = success.path.parent
    assert list(status_is_true(surroundings, sweep, 0)) == []
    (success.repeat(0) / "samples.1.jsonl").unlink()
    assert list(status_is_true(surroundings, sweep, 0)) == [f"{success.path.name} is a success, but rank 1 has 0 of 3 steps in repeat.0"]


def test_a_success_that_is_measured_again_meanwhile_is_none_without_samples(success: RunFolder, surroundings: Surroundings, monkeypatch) -> None:
    run = subprocess.run

    def run_and_set_aside(*args, **words):
        done = run(*args, **words)
        set_aside(success)
        return done

    monkeypatch.setattr(subprocess, "run", run_and_set_aside)
    assert list(status_is_true(surroundings, success.path.parent, 1)) == []


def test_a_run_that_goes_on_without_a_driver_is_seen(success: RunFolder, surroundings: Surroundings) -> None:
    success.result_path.unlink()
    success.event("running", **process_identity())
    (loss,) = status_is_true(surroundings, success.path.parent, 0)
    assert loss.startswith("status says that runs go on, with 0 drivers alive")


def test_a_store_that_differs_is_seen(success: RunFolder, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    uri, sweep = f"sqlite:///{tmp_path}/store.db", success.path.parent
    sync([success], TrackingConfig(name="mlflow", uri=uri, experiment="mine"))
    assert list(store_equals_folders(uri, "mine", sweep)) == []
    client = MlflowClient(uri)
    tags = {"llmexp.kind": "run", "folder": success.path.name}
    client.create_run(client.get_experiment_by_name("mine").experiment_id, tags=tags, run_name=success.path.name)
    losses = list(store_equals_folders(uri, "mine", sweep))
    assert f"MLflow has {success.path.name} as RUNNING" in losses
    assert len(losses) == 2
