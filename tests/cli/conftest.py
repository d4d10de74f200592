from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llmexp.launch.stack import stack_digest
from llmexp.plan.training_plan import TrainingPlan
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult, RunStatus


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass
class Runner:
    """Stands for llmexp.launch.run.run_one: notes what it was given and ends it as told, by method."""

    result_of: Callable[..., RunResult]
    endings: dict[str, RunStatus | Exception] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    largest_micro: int = 10**6

    def __call__(self, plan: TrainingPlan, folder: RunFolder, wanted: Callable[[], bool]) -> RunResult:
        assert wanted()
        folder.write(folder.plan_path, plan)
        if plan.skip:
            ending: RunStatus | Exception = RunStatus.SKIPPED
        else:
            self.ran.append(plan.name)
            fits = plan.batch.micro <= self.largest_micro
            ending = self.endings.get(plan.method, RunStatus.SUCCESS if fits else RunStatus.OOM)
        if isinstance(ending, Exception):
            raise ending
        result = self.result_of(plan, ending, stack=stack_digest(plan), reason=plan.skip or "")
        folder.write(folder.result_path, result)
        return result


@pytest.fixture
def runner(result_of: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch) -> Runner:
    fake = Runner(result_of)
    monkeypatch.setattr("llmexp.launch.run.run_one", fake)
    return fake


@pytest.fixture
def llmexp(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: exit code, stdout, stderr."""
    from llmexp.__main__ import main

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        return code, *capfd.readouterr()

    return run
