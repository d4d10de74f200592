"""The loss scale falls and rises as it should, and warm-ups end with an update."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from pathlib import Path

import pytest
import torch
from planning import make_plan
from stub_engine import StubEngine

from llmexp.errors import ConfigError
from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.training import measuring
from llmexp.launchers.training.loss_scaling import LossScale
from llmexp.record.samples import StepSample, read_samples
from llmexp.training.plan.training_plan import TrainingPlan

FIRST = 2
Trained = tuple["ScalingEngine", list[StepSample]]


def scale_of(window: int = 3) -> LossScale:
    words = ("precision=fp16", f"precision.initial_scale_power={FIRST}", f"precision.scale_window={window}")
    return LossScale(make_plan(*words).config.precision)


def test_it_halves_after_overflow_and_doubles_after_a_window_of_steps_without() -> None:
    scale, used = scale_of(), []
    for norm in (1.0, inf, 1.0, 1.0, nan, 1.0, 1.0, 1.0, 1.0):
        overflowed = scale.overflows(torch.tensor(norm))
        assert scale.last
        assert scale.last[1] == overflowed == (norm != 1.0)
        used.append(scale.last[0])
    assert used == [4.0, 4.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0]


def test_it_is_never_less_than_1() -> None:
    scale = scale_of()
    for _ in range(5):
        scale.overflows(torch.tensor(inf))
    assert scale.factor == 1.0


class ScalingEngine(StubEngine):
    """Skips the updates of its first steps."""

    def __init__(self, skipped: int) -> None:
        super().__init__(lambda: None)
        self.steps, self.counted = 0, list[int]()
        self._skipped = skipped

    def step(self) -> None:
        super().step()
        self.steps += 1

    def gradient_norm(self) -> float | None:
        return float(self.steps)

    def parameter_groups(self) -> list[dict[str, float]]:
        return [{"lr": 0.1}]

    def norm_of_step(self) -> None:
        return None

    def scaled_step(self) -> tuple[float, bool]:
        return 8.0 / self.steps, self.steps <= self._skipped

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        self.counted.append(self.steps)
        return super().state_tensors()


@pytest.fixture
def measured(tiny_plan: Callable[..., TrainingPlan], tmp_path: Path) -> Callable[..., Trained]:
    def run(skipped: int) -> Trained:
        plan = tiny_plan(parallelism__dp=1, data__seq_len=8, measure__warmup_steps=3, measure__steps=2)
        rank, engine = Rank(0, 0, 1, tmp_path / "repeat.0"), ScalingEngine(skipped)
        rank.folder.mkdir()
        summary = measuring.measure_training(plan, rank, engine, torch.device("cpu"))
        assert summary.gradient_norm == skipped + 1
        assert summary.what_ran["loss_scale"] == 8.0 / engine.steps
        return engine, list(read_samples(rank.samples_path, StepSample))

    return run


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("skipped", [0, 2])
def test_state_is_counted_in_the_first_step_that_updates(measured: Callable[..., Trained], skipped: int) -> None:
    engine, samples = measured(skipped)
    assert engine.counted[-1] == skipped + 1
    assert [(sample.index, sample.warmup) for sample in samples] == [(step, step < 3) for step in range(5)]
    assert [sample.skipped for sample in samples] == [step < skipped for step in range(5)]
    assert [sample.loss_scale for sample in samples] == [8.0 / (step + 1) for step in range(5)]


@pytest.mark.usefixtures("alone")
def test_a_warm_up_without_an_update_fails(measured: Callable[..., Trained]) -> None:
    with pytest.raises(
        ConfigError, match=r"in all 3 steps of the warm-up, the last time with the loss times 2\.66667: set"
    ):
        measured(3)
