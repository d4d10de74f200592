from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import own_processes
import psutil
import pytest

import llmexp.registry
from llmexp.record.folder import RunFolder
from llmexp.record.plan import Command
from llmexp.record.result import to_json
from llmexp.training.plan.training_plan import TrainingPlan

HERE = Path(__file__).parent
processes = own_processes.processes


@pytest.fixture(autouse=True)
def _scripted_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE / "engines")
    monkeypatch.setitem(llmexp.registry.ENGINES, "scripted", "scripted:ENGINE")


@pytest.fixture(autouse=True)
def _only_own_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel kills is counted for the whole machine, for other tests too.

    Who looks for such a kill has a driver of its own.
    """
    monkeypatch.setattr("llmexp.launch.run.oom_kills", lambda: 0)


@pytest.fixture
def signs_of_life(folder: RunFolder) -> Iterator[None]:
    """Give signs of life until a sample of rank 1 is there.

    However long a machine takes to import torch, that is not the silence which a test looks for.
    """
    log, sample, ended = folder.repeat(0) / "log.alive.txt", folder.repeat(0) / "samples.1.jsonl", threading.Event()

    def write() -> None:
        while not sample.exists() and not ended.wait(0.5):
            if log.parent.exists():
                with log.open("a") as file:
                    file.write("importing\n")

    thread = threading.Thread(target=write)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "outputs" / "main" / "tiny_Naive_0123456789ab")


@pytest.fixture
def make_plan(tiny_plan: Callable[..., TrainingPlan]) -> Callable[..., TrainingPlan]:
    """A plan of two ranks whose agent is scripts/agent.py with a behavior, or any other command.

    Keywords change `measure`.
    """

    def make(behavior: str = "well", argv: list[str] | None = None, **measure: Any) -> TrainingPlan:
        limits = {"timeout_s": 600.0, "no_progress_timeout_s": 600.0}
        planned = tiny_plan(**{f"measure__{name}": value for name, value in (limits | measure).items()})
        config = planned.config.model_copy(
            update={"engine": planned.config.engine.model_copy(update={"name": "scripted"})}
        )
        command = Command(
            argv=argv or [sys.executable, str(HERE / "scripts" / "agent.py"), "{folder}", behavior],
            env={"EXTRA": "yes"},
        )
        return planned.model_copy(update={"config": config, "command": command})

    return make


@pytest.fixture
def start_driver(tmp_path: Path, folder: RunFolder) -> Iterator[Callable[[TrainingPlan], psutil.Popen]]:
    """Start a driver process that runs a plan in `folder`."""
    started: list[psutil.Popen] = []

    def start(plan: TrainingPlan) -> psutil.Popen:
        path = tmp_path / "given.json"
        path.write_text(to_json(plan))
        started.append(psutil.Popen([sys.executable, str(HERE / "scripts" / "driver.py"), str(path), str(folder.path)]))
        return started[-1]

    yield start
    for process in started:
        if process.is_running():
            process.kill()
        process.wait()
