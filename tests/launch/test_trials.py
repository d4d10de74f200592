from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from llmexp.launch.stack import stack_digest
from llmexp.launch.trials import add_trial, is_one_more_trial, settle, spent_trials, trials_of
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult, RunStatus
from llmexp.training.plan.training_plan import TrainingPlan


@pytest.fixture(autouse=True)
def _from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin searches at 1, whatever the plan's arithmetic says of the tiny model."""
    monkeypatch.setattr("llmexp.training.largest_batch.first_batch", lambda plan: 1)


@dataclass
class Device:
    """Stands for run_one on a device that so many samples a rank fit on; `broken` is a batch that fails."""

    result_of: Callable[..., RunResult]
    limit: int = 5
    broken: int = 0
    ran: list[int] = field(default_factory=list)

    def __call__(self, plan: TrainingPlan, folder: RunFolder) -> RunResult:
        micro = plan.batch.micro
        self.ran.append(micro)
        status = RunStatus.SUCCESS if micro <= self.limit else RunStatus.OOM
        status, reason = (RunStatus.FAILED, "no such kernel") if micro == self.broken else (status, "")
        folder.write(folder.plan_path, plan)
        result = self.result_of(plan, status, stack=stack_digest(plan), reason=reason)
        folder.write(folder.result_path, result)
        return result


@pytest.fixture
def device(result_of) -> Device:
    return Device(result_of)


@pytest.fixture
def searching(tiny_plan) -> TrainingPlan:
    return tiny_plan("F", batch__micro="max")


def test_trials_settle_the_batch_of_the_run_that_was_asked_for(searching, folder, device):
    plan, unable = settle(searching, folder, device)
    assert unable is None
    assert device.ran == [1, 2, 4, 8, 6, 5, 5]
    assert (plan.batch.micro, plan.batch.global_, plan.settled) == (5, 10, True)
    assert plan.engine_config["train_micro_batch_size_per_gpu"] == 5
    assert (plan.id, plan.config) == (searching.id, searching.config)
    assert TrainingPlan.model_validate_json(plan.model_dump_json()) == plan


def test_an_interrupted_search_goes_on_from_its_trials(searching, folder, device, result_of):
    settle(searching, folder, device)
    whole = device.ran.copy()
    last = folder.trial(3)
    last.write(last.result_path, result_of(searching, RunStatus.KILLED, stack=stack_digest(searching)))
    assert spent_trials(searching, folder) == []
    settle(searching, folder, device)
    assert device.ran == [*whole, whole[3]]


def test_a_trial_that_fails_ends_the_run_with_its_reason(searching, folder, device):
    device.broken = 4
    plan, unable = settle(searching, folder, device)
    assert unable
    assert (unable.status, unable.reason) == (RunStatus.FAILED, "trial 3, batch 4: no such kernel")
    assert not plan.settled


def test_where_nothing_fits_the_run_is_the_smallest(searching, folder, device):
    device.limit = 0
    plan, unable = settle(searching, folder, device)
    assert (unable, plan.batch.micro, device.ran) == (None, 1, [1])
    own = device(plan, folder)
    assert own.status is RunStatus.OOM
    assert not is_one_more_trial(plan, folder, own)


def test_a_run_that_is_out_of_memory_where_its_trials_fitted_takes_a_smaller_batch(searching, folder, device):
    plan, _ = settle(searching, folder, device)
    device.limit = 4
    own = device(plan, folder)
    assert is_one_more_trial(plan, folder, own)
    add_trial(folder, own)
    assert settle(searching, folder, device)[0].batch.micro == 4


def test_a_run_with_a_given_batch_has_no_trials(tiny_plan, folder, device):
    plan = tiny_plan("F", batch__micro=3)
    assert settle(plan, folder, device) == (plan, None)
    assert not device.ran
    assert not folder.trials_path.exists()


def test_trials_are_given_up_with_an_answer_with_another_stack_and_when_all_is_measured_again(
    searching, tiny_plan, folder, device, result_of
):
    settle(searching, folder, device)
    assert spent_trials(searching, folder) == []
    assert spent_trials(tiny_plan("F", batch__micro="max", rerun="all"), folder) == [folder.trials_path]
    folder.write(folder.result_path, result_of(searching, RunStatus.FAILED))
    assert spent_trials(searching, folder) == []
    folder.write(folder.result_path, result_of(searching, RunStatus.SUCCESS))
    assert spent_trials(searching, folder) == [folder.trials_path]
    folder.result_path.unlink()
    first = folder.trial(0)
    first.write(first.result_path, result_of(searching, RunStatus.SUCCESS, stack="ffffffffffff"))
    assert spent_trials(searching, folder) == [folder.trials_path]


def test_a_damaged_trial_gives_the_search_up(searching, folder, device):
    settle(searching, folder, device)
    folder.trial(2).result_path.write_text("{")
    assert spent_trials(searching, folder) == [folder.trials_path]


def test_trials_are_read_in_their_order(searching, folder, device):
    device.limit = 700
    settle(searching, folder, device)
    assert len(device.ran) > 10
    assert [trial.batch.micro for trial in trials_of(folder)] == device.ran
