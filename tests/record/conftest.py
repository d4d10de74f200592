import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llmexp.record.breakdown import RunBreakdown
from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, RunResult, Stability
from llmexp.training.plan.training_plan import TrainingPlan

MakeRun = Callable[..., RunFolder]
STEPS, WARMUP_STEPS, PROFILED_STEPS, STEP_S = 25, 5, 2, 0.1
MS = 1_000_000
UNUSED = (
    *("exposed_communication_ns", "exposed_copy_ns", "idle_late_ns", "idle_queued_ns", "idle_unexplained_ns"),
    *("communication_ns", "copy_ns"),
)
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A repository with one commit of `file`, and the working directory in a folder of it."""
    root = tmp_path / "repository"

    def run(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True
        ).stdout.strip()

    (root / "folder").mkdir(parents=True)
    monkeypatch.chdir(root / "folder")
    run("init", "-q")
    (root / "file").write_text("1\n")
    run("add", "file")
    run("commit", "-qm", "first")
    run("remote", "add", "origin", "https://me:secret@example.org/a.git")
    return run


@pytest.fixture
def make_run(
    outputs: Path,
    tiny_plan: Callable[..., TrainingPlan],
    result_of: Callable[..., RunResult],
    write_samples: Callable[..., None],
) -> MakeRun:
    """Write a whole run's folder with fake values for 2 ranks; where status is None, without its result and event."""

    def make(method: str = "Naive", status: str | None = "success", repeats: int = 1, **changes: Any) -> RunFolder:
        plan = tiny_plan(method, **{"batch": {"micro": 2, "accumulation": 1}} | changes)
        folder = RunFolder(outputs / plan.config.sweep.name / plan.folder_name)
        folder.write(folder.plan_path, plan)
        started_s = time.time() - 60
        for index in range(repeats):
            _write_repeat(folder.repeat(index), write_samples)
        folder.figures.mkdir()
        (folder.figures / "loss.png").write_bytes(PIXEL)
        folder.system_path.write_text(
            "".join(f'{{"at_s": {started_s + 5 * n}, "cpu_utilization_percentage": {50 + n}}}\n' for n in range(3))
        )
        if status:
            folder.event("running")
            times = {"started_at": _iso(started_s), "ended_at": _iso(started_s + 50)}
            folder.write(folder.result_path, result_of(plan, status, **times, **_measured(status, repeats)))
        return folder

    return make


def _write_repeat(repeat: Path, write_samples: Callable[..., None]) -> None:
    """Rank 1 takes twice as long as rank 0."""
    (repeat / "trace").mkdir(parents=True)
    (repeat / "trace" / "trace.0.json.gz").write_bytes(b"\x1f\x8b fake")
    for rank in (0, 1):
        (repeat / f"log.{rank}.txt").write_text("step 0\n")
        steps = [(STEP_S * (rank + 1), 6.0 - 0.1 * step, 700, 700) for step in range(STEPS + PROFILED_STEPS)]
        write_samples(repeat, rank, steps, warmup={*range(WARMUP_STEPS), *range(STEPS, STEPS + PROFILED_STEPS)})


def _measured(status: str, repeats: int) -> dict[str, Any]:
    environment = {"python": "3.11.0", "git": {"llmexp": {"commit": "c0ffee", "dirty": False, "remote": None}}}
    if status != "success":
        return {"reason": f"made to end as {status}", "repeats": repeats, "environment": environment}
    metrics = {"tokens_per_s": Metric(mean=7000.0, std_between_repeats=12.5, n=repeats), "mfu": None}
    judged = Stability(
        verdict="unstable",
        metric="tokens_per_s",
        reasons=["drift: a", "noise: b"],
        low=6900.0,
        high=7100.0,
        source="steps",
    )
    return {
        "stability": judged,
        "metrics": metrics,
        "repeats": repeats,
        "what_ran": {"attention_kernel": "aten::_softmax"},
        "environment": environment,
    }


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")


@pytest.fixture
def profiled_steps() -> RunBreakdown:
    """Two steps of 10 ms each, of one phase: a layer of 7 ms, 4 of them in its attention, and 3 idle."""
    rows = [(("Layer",), 6), (("Layer", "Attention"), 8)]
    times = {"phase": "forward", "communication_ns": 0, "copy_ns": 0, "gemm_ns": 7 * MS}
    modules = [
        {"phase": "forward", "path": path, "recomputed": False, "exclusive_ns": ms * MS, "work_ns": ms * MS}
        | {"gemm_ns": ms * MS // 2, "pieces": 1}
        for path, ms in rows
    ]
    rank: dict[str, Any] = dict.fromkeys(UNUSED, 0) | {
        "source": "rank0.json.gz",
        "on_device": True,
        "steps": 2,
        "window_ns": 20 * MS,
        "compute_ns": 14 * MS,
        "idle_ns": 6 * MS,
        "phases": [times | {"steps": 2, "time_ns": 20 * MS, "compute_ns": 14 * MS, "idle_ns": 6 * MS}],
        "modules": modules,
        "kernels": [],
    }
    return RunBreakdown.model_validate({"repeat": 0, "ranks": [rank]})
