"""The measured part of a rank: what surrounds the window."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from stub_engine import StubEngine

from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.training import measuring
from llmexp.record.samples import StepSample, read_samples
from llmexp.training.plan.training_plan import TrainingPlan

STEPS, WARMUP_STEPS, TRACED_STEPS = 3, 2, 2


@pytest.mark.usefixtures("alone")
def test_no_profiler_runs_before_the_window_is_over_and_weights_are_kept_as_it_leaves_them(
    tiny_plan: Callable[..., TrainingPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profiler may leave something in the process that slows down what is launched after it."""
    steps, kept_after = list[bool](), list[int]()

    def keep(*_: object) -> dict[str, Any]:
        kept_after.append(len(steps))
        return {"saved": ["repeat.0/model"]}

    monkeypatch.setattr(measuring, "_kept", keep)
    protocol = {"warmup_steps": WARMUP_STEPS, "steps": STEPS, "profile_steps": TRACED_STEPS, "repeats": 1}
    plan = tiny_plan(
        parallelism__dp=1, data__seq_len=8, **{f"measure__{name}": value for name, value in protocol.items()}
    )
    rank = Rank(0, 0, 1, tmp_path / "repeat.0")
    rank.folder.mkdir()
    engine = StubEngine(lambda: steps.append(torch.autograd._profiler_enabled()))
    summary = measuring.measure_training(plan, rank, engine, torch.device("cpu"))
    assert steps == [False] * (WARMUP_STEPS + STEPS) + [True] * (1 + TRACED_STEPS)
    assert kept_after == [WARMUP_STEPS + STEPS] == [len(list(read_samples(rank.samples_path, StepSample)))]
    assert summary.what_ran["saved"] == ["repeat.0/model"]
    assert any("addmm" in kernel["name"] for kernel in summary.what_ran["kernels"])
    assert summary.gradient_norm == 5.0
    assert summary.what_ran["products_in"] == "fp32"
    digests = [sample.sequences for sample in read_samples(rank.samples_path, StepSample)]
    assert all(digests[:WARMUP_STEPS])
    assert len(set(digests[:WARMUP_STEPS])) == WARMUP_STEPS
    assert digests[WARMUP_STEPS:] == [None] * STEPS


class EngineWithFiles(StubEngine):
    """An engine that keeps states in a file."""

    def __init__(self, file: Path) -> None:
        super().__init__(lambda: None)
        self._file = file
        file.touch()

    def file_bytes(self) -> dict[str, int]:
        return {}

    def swap_buffers(self) -> list[torch.Tensor]:
        return []

    def remove_files(self) -> None:
        self._file.unlink()


@pytest.mark.parametrize("error", [None, RuntimeError("no step")])
def test_a_ranks_files_end_with_it_however_it_ends(
    tiny_plan: Callable[..., TrainingPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    plan, rank, file, there = tiny_plan(), Rank(0, 0, 1, tmp_path / "repeat.0"), tmp_path / "state", list[bool]()

    def measure(*_: object) -> None:
        there.append(file.exists())
        if error:
            raise error

    def train(work: Callable[[TrainingPlan, Rank], object]) -> None:
        with pytest.raises(RuntimeError) if error else nullcontext():
            work(plan, rank)

    monkeypatch.setattr(measuring, "measure_training", measure)
    monkeypatch.setattr(measuring, "train", train)
    measuring.run_rank(lambda device: None, lambda *_: EngineWithFiles(file))
    assert there == [True]
    assert not file.exists()
