from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import llmexp.engines
from llmexp.plan.dims import ParallelDims
from llmexp.plan.run_plan import Command, RunPlan
from llmexp.record.folder import RunFolder
from llmexp.record.result import Batch, to_json
from llmexp.schema import RunConfig, validate

HERE = Path(__file__).parent
MARK = "LLMEXP_TEST_MARK"


@pytest.fixture(autouse=True)
def _scripted_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llmexp.engines, "__path__", [*llmexp.engines.__path__, str(HERE / "engines")])


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[psutil.Process]]]:
    """All living processes that this test started, wherever their parents went; none may outlive the test."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)

    def living() -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if process.pid != os.getpid() and _mark(process) == mark]

    yield living
    left = living()
    for process in left:
        process.kill()
    assert left == []


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK) if process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for a condition; fail where it does not come true in time."""

    def wait(condition: Callable[[], Any], within_s: float = 20.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)

    return wait


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "outputs" / "main" / "tiny_Naive_0123456789ab")


@pytest.fixture
def config() -> RunConfig:
    sizes = dict.fromkeys(
        ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "max_positions"), 8
    )
    return validate(
        {
            "method": "Naive",
            "task": {"name": "pretrain"},
            "model": {"name": "tiny", "architecture": "llama", **sizes},
            "hardware": {"name": "cpu", "device": "cpu", "devices_per_node": 2},
            "engine": {"name": "scripted", "launcher": "torchrun"},
            "parallelism": {"dp": 2},
            "optimizer": {"name": "adamw", "implementation": "torch", "lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0},
            "precision": {"name": "fp32", "parameters": "fp32", "gradients": "fp32", "master": "fp32", "moments": "fp32"},
            "data": {"name": "synthetic", "seq_len": 8},
            "batch": {"micro": 1, "accumulation": 1},
            "measure": {
                "name": "smoke", "warmup_steps": 1, "steps": 2, "repeats": 1, "profile": False, "timeout_s": 60.0, "no_progress_timeout_s": 60.0,
            },
            "tracking": {"name": "none"},
            "sweep": {"name": "main"},
            "seed": 0,
            "force": False,
            "rerun": "failed",
        }
    )  # fmt: skip


@pytest.fixture
def make_plan(config: RunConfig) -> Callable[..., RunPlan]:
    """A plan of two ranks whose agent is scripts/agent.py with a behaviour, or any other command; keywords change `measure`."""

    def make(behaviour: str = "well", argv: list[str] | None = None, **measure: Any) -> RunPlan:
        changed = config.model_copy(update={"measure": config.measure.model_copy(update=measure)})
        return RunPlan(
            id="0123456789ab",
            method="Naive",
            atoms=[],
            dims=ParallelDims(dp=2, tp=1, pp=1, cp=1, ep=1),
            batch=Batch(micro=1, accumulation=1, global_=2),
            parameters=10,
            trainable_parameters=10,
            flops_per_token=60.0,
            memory=None,
            engine_config={},
            command=Command(argv=argv or [sys.executable, str(HERE / "scripts" / "agent.py"), "{folder}", behaviour], env={"EXTRA": "yes"}),
            rerun_command="python -m llmexp",
            config=changed,
        )

    return make


@pytest.fixture
def start_driver(tmp_path: Path, folder: RunFolder) -> Iterator[Callable[[RunPlan], psutil.Popen]]:
    """Start a driver process that runs a plan in `folder`."""
    started: list[psutil.Popen] = []

    def start(plan: RunPlan) -> psutil.Popen:
        path = tmp_path / "given.json"
        path.write_text(to_json(plan))
        started.append(psutil.Popen([sys.executable, str(HERE / "scripts" / "driver.py"), str(path), str(folder.path)]))
        return started[-1]

    yield start
    for process in started:
        if process.is_running():
            process.kill()
        process.wait()
