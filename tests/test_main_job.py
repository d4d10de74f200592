"""The main job as a person types it, on real ranks.

The tests look at what is counted, kept and skipped, and how it ends when something dies.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from patience import HANG_S, until

from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import SCHEMA_VERSION, RunResult
from llmexp.record.samples import StepSample, read_samples

pytestmark = [pytest.mark.ranks, pytest.mark.long]

DEEPSPEEDS_OWN_PORT = 29500
# Two ranks on a thread each do not wait for each other's threads in a loop.
QUICK = ("model.num_layers=1", "measure.threads_per_rank=1")
Llmexp = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def llmexp(tmp_path: Path) -> Llmexp:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "llmexp", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=HANG_S)

    return run


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")} | {
        "CUDA_VISIBLE_DEVICES": ""
    }


def results(root: Path) -> dict[str, RunResult]:
    found = [folder.result() for folder in find_runs(root)]
    return {result.method: result for result in found if result}


@pytest.mark.sweep
def test_the_deepspeed_launcher_starts_ranks_too_and_the_same_command_keeps_its_results(
    llmexp: Llmexp, tmp_path: Path
) -> None:
    words = (
        "method=F",
        "engine.launcher=deepspeed",
        "measure=smoke",
        "measure.profile=false",
        "tracking=none",
        "hardware=cpu",
    )
    with socket.socket() as taken:
        with suppress(OSError):  # taken already
            taken.bind(("127.0.0.1", DEEPSPEEDS_OWN_PORT))
            taken.listen()
        done = llmexp(*words)
    assert done.returncode == 0, done.stderr
    first = results(tmp_path / "outputs")["F"]
    assert (first.status, first.processes, first.what_ran["backend"]) == ("success", 2, "gloo")
    assert sorted(path.name for path in (tmp_path / "outputs").glob("main/*/repeat.0/rank.*.json")) == [
        "rank.0.json",
        "rank.1.json",
    ]
    again = llmexp(*words)
    assert again.returncode == 0
    assert "success already" in again.stdout
    assert results(tmp_path / "outputs")["F"] == first


def test_padding_accumulation_and_ranks_are_counted_once(llmexp: Llmexp, tmp_path: Path) -> None:
    words = (
        "data.pack=false",
        "data.seq_len=512",
        "batch.micro=2",
        "batch.accumulation=3",
        "measure.warmup_steps=1",
        "measure.steps=4",
        "measure.profile=false",
        *QUICK,
    )
    assert (
        llmexp("method=Z2", "engine=torch", "engine.launcher=fork", "tracking=none", "hardware=cpu", *words).returncode
        == 0
    )
    (folder,) = find_runs(tmp_path / "outputs")
    result = folder.result()
    assert result is not None
    assert (result.batch.micro, result.batch.accumulation, result.batch.global_) == (2, 3, 12)
    repeat = folder.repeat(0)
    ranks = [[s for s in read_samples(repeat / f"samples.{rank}.jsonl", StepSample) if not s.warmup] for rank in (0, 1)]
    assert {sample.positions for rank in ranks for sample in rank} == {2 * 3 * 512}
    assert len({sample.real_tokens for rank in ranks for sample in rank}) > 1
    window_s = max(json.loads((repeat / f"rank.{rank}.json").read_text())["window_wall_s"] for rank in (0, 1))
    tokens_per_s, real_tokens_per_s = result.metrics["tokens_per_s"], result.metrics["real_tokens_per_s"]
    assert tokens_per_s is not None
    assert real_tokens_per_s is not None
    assert tokens_per_s.mean == pytest.approx(4 * 12 * 512 / window_s)
    real_tokens = sum(sample.real_tokens for rank in ranks for sample in rank)
    assert real_tokens_per_s.mean == pytest.approx(real_tokens / window_s)
    assert real_tokens < 4 * 12 * 512


def test_what_cannot_fit_is_skipped_with_its_arithmetic_before_any_rank_starts(llmexp: Llmexp, tmp_path: Path) -> None:
    done = llmexp("+method=F+R+Z3", "model=70b", "precision=bf16_mixed", "tracking=none", "-m")
    assert done.returncode == 0
    assert list(tmp_path.glob("outputs/main/*/repeat.*")) == []
    assert results(tmp_path / "outputs")["F+R+Z3"].status == "skipped"
    assert "needs at least 1035.3 GiB of host memory for 2 ranks on a node" in done.stdout


@pytest.mark.slow
def test_a_killed_driver_leaves_the_truth_and_no_process(llmexp: Llmexp, tmp_path: Path) -> None:
    words = ["method=Naive", "engine=torch", "engine.launcher=fork", "measure.steps=100000", "hardware=cpu", *QUICK]
    driver = subprocess.Popen(
        [sys.executable, "-m", "llmexp", *words], cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL
    )
    (folder,) = wait_for(
        lambda: [found for found in find_runs(tmp_path / "outputs") if (found.repeat(0) / "samples.0.jsonl").exists()]
    )
    ranks = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    assert psutil.wait_procs(ranks, timeout=HANG_S)[1] == []
    assert RunFolder(folder.path).state() == "killed"
    assert "killed" in llmexp("status").stdout
    assert llmexp("sync").returncode == 0
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/outputs/mlflow.db")
    (run,) = client.search_runs(["1"], "tags.`llmexp.status` = 'killed'")
    assert run.info.status == "KILLED"


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_and_is_named(tmp_path: Path) -> None:
    words = ["method=Z2", "engine=torch", "measure.steps=100000", "hardware=cpu", "tracking=none", *QUICK]
    driver = subprocess.Popen(
        [sys.executable, "-m", "llmexp", *words], cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL
    )
    (folder,) = wait_for(
        lambda: [found for found in find_runs(tmp_path / "outputs") if (found.repeat(0) / "samples.0.jsonl").exists()]
    )
    victim = next(p for p in psutil.Process(driver.pid).children(recursive=True) if p.environ().get("RANK") == "1")
    victim.kill()
    assert driver.wait(timeout=HANG_S) == 1
    result = folder.result()
    assert result is not None
    assert result.status == "killed"
    assert "rank 1" in result.reason
    assert "SIGKILL" in result.reason
    assert json.loads(folder.result_path.read_text())["schema"] == SCHEMA_VERSION


def wait_for(found: Callable[[], list[RunFolder]]) -> list[RunFolder]:
    until(found)
    return found()
