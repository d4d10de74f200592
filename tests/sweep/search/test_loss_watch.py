from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from llmexp.launch.early_end import early_end, ended_when
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus
from llmexp.sweep.search.loss_watch import LossWatch
from llmexp.training.plan.training_plan import TrainingPlan


class Judge:
    """Notes what is asked, and finds the first worse that comes after a step."""

    def __init__(self, worse_from: float = math.inf) -> None:
        self.asked: list[tuple[int, float]] = []
        self._worse_from = worse_from

    def __call__(self, step: int, loss: float) -> bool:
        self.asked.append((step, loss))
        return step >= self._worse_from


@pytest.fixture
def plan(tiny_plan: Callable[..., TrainingPlan], tmp_path, monkeypatch) -> TrainingPlan:
    monkeypatch.chdir(tmp_path)
    return tiny_plan(parallelism__dp=2, measure__warmup_steps=10, measure__steps=50)


def test_a_part_of_the_steps_is_judged_by_the_mean_of_all_ranks_once_all_have_it(plan, write_samples) -> None:
    judge, repeat = Judge(), RunFolder(plan.folder).repeat(0)
    watch = LossWatch(plan, judge)
    assert watch(repeat) is None
    write_samples(repeat, 0, [(1.0, loss) for loss in (6.0, 5.0, 4.0, 3.0)])
    watch(repeat)
    assert judge.asked == []
    write_samples(repeat, 1, [(1.0, loss) for loss in (4.0, 3.0, 2.0, 1.0)])
    watch(repeat)
    watch(repeat)
    assert judge.asked == [(3, 4.0)]


def test_a_run_that_is_worse_ends_with_the_step_and_its_loss(plan, write_samples) -> None:
    repeat = RunFolder(plan.folder).repeat(0)
    for rank in range(2):
        write_samples(repeat, rank, [(1.0, 6.0)] * 12)
    with ended_when(LossWatch(plan, Judge(worse_from=6))):
        ending = early_end(repeat)
    assert ending is not None
    assert ending.status is RunStatus.KILLED
    assert ending.reason == "pruned at step 6 of 60: its loss 6 is worse than that of other trials there"
    assert early_end(repeat) is None


def test_a_loss_that_is_no_number_ends_the_run(plan, write_samples) -> None:
    repeat = RunFolder(plan.folder).repeat(0)
    for rank in range(2):
        write_samples(repeat, rank, [(1.0, math.nan)] * 3)
    assert LossWatch(plan, Judge())(repeat) == "pruned at step 3 of 60: its loss is no finite number"


def test_other_repeats_and_other_runs_are_left_alone(plan, write_samples, tmp_path) -> None:
    judge = Judge(worse_from=0)
    for repeat in (RunFolder(plan.folder).repeat(1), tmp_path / "trials" / "1" / "repeat.0"):
        for rank in range(2):
            write_samples(repeat, rank, [(1.0, 6.0)] * 12)
        assert LossWatch(plan, judge)(repeat) is None
    assert judge.asked == []
