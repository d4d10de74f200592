"""What NVML counts of a rank's GPU is read at both ends of its measured window, and nowhere else.

The GPU is pretended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch._inductor  # the profiler would import it, and meet the pretended GPU
from stub_engine import StubEngine

from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.script import program_run
from llmexp.launchers.script.program_run import ProgramRun
from llmexp.launchers.training import measuring
from llmexp.training.plan.training_plan import TrainingPlan

CPU = torch.device("cpu")


class Counting(ModuleType):
    """A GPU that loses 100 ns to heat in each step that is taken."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.steps, self.read_at = 0, list[int]()

    def take_step(self) -> None:
        self.steps += 1

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: 5

    def nvmlDeviceGetFieldValues(self, handle: Any, fields: list[int]) -> list[SimpleNamespace]:  # noqa: N802
        self.read_at.append(self.steps)
        return [SimpleNamespace(fieldId=75, nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=self.steps * 100))]

    def nvmlDeviceGetViolationStatus(self, *_: object) -> None:  # noqa: N802
        raise self.NVMLError("not supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Counting:
    fake = Counting()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    for module in (measuring, program_run):
        monkeypatch.setattr(module, "gpu_uuid", lambda _: "GPU-a")
    return fake


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(index=0, local_index=0, world_size=1, folder=tmp_path)


@pytest.mark.usefixtures("alone")
def test_an_engine_s_rank_counts_the_steps_of_the_window_alone(
    nvml: Counting, rank: Rank, tiny_plan: Callable[..., TrainingPlan]
) -> None:
    plan = tiny_plan(measure__warmup_steps=3, measure__steps=4, measure__repeats=1, parallelism__dp=1, data__seq_len=8)
    summary = measuring.measure_training(plan, rank, StubEngine(nvml.take_step), CPU)
    assert nvml.read_at == [3, 7]
    assert summary.gpu is not None
    assert (summary.gpu.index, summary.gpu.throttled_s) == (5, {"heat": pytest.approx(4e-7)})
    assert summary.gpu.power_cap_w == pytest.approx(0.005)


def test_a_rank_of_a_program_does_too(nvml: Counting, rank: Rank) -> None:
    plan: Any = SimpleNamespace(engine_config={"argv": ["train.py"], "line": "step"})
    watching = ProgramRun(plan, rank, CPU)
    nvml.steps = 3
    with watching.window():
        nvml.steps = 7
    summary = watching.summary(1.0, "hook")
    assert nvml.read_at == [3, 7]
    assert summary.gpu is not None
    assert summary.gpu.throttled_s == {"heat": pytest.approx(4e-7)}


def test_a_rank_on_a_processor_asks_nobody() -> None:
    assert measuring.gpu_uuid(CPU) is None
