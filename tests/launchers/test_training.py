"""The measured part of a rank: what surrounds the window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from planning import make_plan
from torch import nn

from llmexp.launchers import training
from llmexp.launchers.rank import Rank
from llmexp.record.result import read_samples

STEPS, WARMUP_STEPS, TRACED_STEPS = 3, 2, 2


class Profiled:
    """An engine that knows in which of its steps a profiler ran, and in which its weights were kept."""

    vocab_size, parameters, trainable_parameters = 512, 1, 1

    def __init__(self) -> None:
        self.module: nn.Module = nn.Linear(1, 1)
        self.steps: list[bool] = []
        self.kept_after: int | None = None

    def forward(self, batch: Any) -> torch.Tensor:
        self.steps.append(torch.autograd._profiler_enabled())
        return self.module(torch.ones(1)).sum()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def step(self) -> None: ...

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        return dict.fromkeys(("parameters", "gradients", "optimizer", "moments"), [torch.ones(1)])

    def offloaded(self) -> frozenset[str]:
        return frozenset()

    def gradient_norm(self) -> float | None:
        return 5.0 if len(self.steps) == 1 else None

    def what_ran(self) -> dict[str, Any]:
        return {}

    def keep(self, *_: Any) -> dict[str, Any]:
        self.kept_after = len(self.steps)
        return {"saved": ["repeat.0/model"]}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Profiled:
    engine = Profiled()
    monkeypatch.setattr(training, "_kept", engine.keep)
    monkeypatch.setattr(training.distributed, "barrier", lambda: None)
    return engine


def test_no_profiler_runs_before_the_window_is_over_and_weights_are_kept_as_it_leaves_them(engine: Profiled, tmp_path: Path) -> None:
    """A profiler may leave something in the process that slows down what is launched after it."""
    protocol = (f"measure.warmup_steps={WARMUP_STEPS}", f"measure.steps={STEPS}", f"measure.profile_steps={TRACED_STEPS}", "measure.repeats=1")
    plan = make_plan("engine=torch", "hardware=cpu", "parallelism.dp=1", "measure=smoke", "data=synthetic", "data.seq_len=8", *protocol)
    rank = Rank(0, 0, 1, tmp_path / "repeat.0")
    rank.folder.mkdir()
    summary = training.measure_training(plan, rank, engine, torch.device("cpu"))
    assert engine.steps == [False] * (WARMUP_STEPS + STEPS) + [True] * (1 + TRACED_STEPS)
    assert engine.kept_after == WARMUP_STEPS + STEPS == len(list(read_samples(rank.samples_path)))
    assert summary.what_ran["saved"] == ["repeat.0/model"]
    assert any("linear" in kernel["name"] or "addmm" in kernel["name"] for kernel in summary.what_ran["kernels"])
    assert summary.gradient_norm == 5.0
