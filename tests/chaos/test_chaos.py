"""The fault suite itself: a short form of it, and that it sees a loss."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from patience import HANG_S

from chaos import power
from chaos.container_daemon import IMAGE, NAME_TAKEN
from chaos.containers import Containers
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


@pytest.mark.slow
@pytest.mark.ranks
def test_a_few_faults_lose_nothing() -> None:
    command = [sys.executable, "-m", "chaos", "--faults", str(FAULTS), "--seed", "11"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"{FAULTS} faults (")
    assert last.endswith("), 4 runs, 0 losses")


def test_a_loss_of_power_takes_what_was_not_forced_to_the_disk(surroundings: Surroundings) -> None:
    write = (
        "import os, sys; os.chdir(sys.argv[1]); forced = open('forced', 'w'); forced.write('kept'); forced.flush(); "
        "os.fsync(forced.fileno());"
        "forced.write(' and lost'); open('left', 'w').write('lost'); open('mlflow.db', 'w').write('forces by itself')"
    )
    surroundings.outputs.mkdir()
    subprocess.run([sys.executable, "-c", write, surroundings.outputs], env=surroundings.environment, check=True)
    power.lose(surroundings.outputs, surroundings.forced_file, random.Random(0))
    found = {path.name: path.read_text().rstrip("\0") for path in surroundings.outputs.iterdir()}
    assert found == {"forced": "kept", "left": "", "mlflow.db": "forces by itself"}


def test_a_clock_is_set_for_the_sweeps_processes_alone(surroundings: Surroundings) -> None:
    surroundings.shift_file.write_text("-3600")
    ask = [sys.executable, "-c", "import time; from llmexp.record.folder import now; print(now(), time.time())"]
    said, seconds = subprocess.check_output(ask, env=surroundings.environment, text=True).split()
    assert time.time() - float(seconds) == pytest.approx(3600, abs=60)
    assert datetime.fromisoformat(said).timestamp() == pytest.approx(float(seconds), abs=1)


def test_what_runs_in_a_container_outlives_who_started_it_and_is_found(surroundings: Surroundings) -> None:
    with Containers(surroundings) as containers:
        client = subprocess.Popen(
            [containers.program, "run", "--rm", "--name", "one", "--env", "TOLD", IMAGE, "sleep", "100"],
            env={"TOLD": "1"},
        )
        while not surroundings.processes():
            time.sleep(0.02)
        client.kill()
        client.wait()
        (left,) = surroundings.processes()
        assert left.environ()["TOLD"] == "1"
        assert (
            subprocess.run([containers.program, "run", "--name", "one", IMAGE, "true"], capture_output=True).returncode
            == NAME_TAKEN
        )
        subprocess.run([containers.program, "rm", "--force", "one"], check=True)
        assert surroundings.processes() == []


def test_a_success_without_its_samples_is_seen(success: RunFolder, surroundings: Surroundings) -> None:
    sweep = success.path.parent
    assert list(status_is_true(surroundings, sweep, list)) == []
    (success.repeat(0) / "samples.1.jsonl").unlink()
    assert list(status_is_true(surroundings, sweep, list)) == [
        f"{success.path.name} is a success, but rank 1 has 0 of 3 steps in repeat.0"
    ]


def test_a_success_that_is_measured_again_meanwhile_is_none_without_samples(
    success: RunFolder, surroundings: Surroundings, monkeypatch
) -> None:
    run = subprocess.run

    def run_and_set_aside(*args, **words):
        done = run(*args, **words)
        set_aside(success)
        return done

    monkeypatch.setattr(subprocess, "run", run_and_set_aside)
    assert list(status_is_true(surroundings, success.path.parent, lambda: [1])) == []


def test_a_run_that_goes_on_without_a_driver_is_seen(success: RunFolder, surroundings: Surroundings) -> None:
    success.result_path.unlink()
    success.event("running", **process_identity())
    (loss,) = status_is_true(surroundings, success.path.parent, list)
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
