from __future__ import annotations

import pytest

from llmexp.errors import ConfigError
from llmexp.record.result import Metric, RunStatus
from llmexp.registry import get_task
from llmexp.training.largest_batch import first_batch, next_trial, points_of, settled, with_batch
from llmexp.training.plan.fit import largest_micro


@pytest.fixture(autouse=True)
def _from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin searches at 1, whatever the plan's arithmetic says of the tiny model."""
    monkeypatch.setattr("llmexp.training.largest_batch.first_batch", lambda plan: 1)


def test_a_trial_is_a_short_run_that_keeps_nothing(tiny_plan):
    plan = tiny_plan("F", batch__micro="max", measure__repeats=3, measure__steps=100, measure__warmup_steps=30)
    trial = next_trial(plan, [])
    assert trial
    assert trial.batch.micro == trial.config.batch.micro == 1
    measure = trial.config.measure
    assert (measure.warmup_steps, measure.steps, measure.repeats, measure.profile) == (2, 5, 1, False)
    assert not trial.config.task.save_model
    assert trial.id != plan.id
    assert trial.name == "tiny F trial 1, batch 1"


def test_the_command_of_a_trial_names_its_batch(tiny_plan):
    trial = next_trial(tiny_plan("F", batch__micro="max"), [])
    assert trial
    assert trial.rerun_command.endswith("batch.micro=1")
    assert "max" not in trial.rerun_command


@pytest.mark.parametrize(("search", "tried"), [("bisect", [1, 2, 4, 3]), ("pow2", [1, 2, 4, 2])])
def test_the_search_asked_for_is_made(tiny_plan, result_of, search, tried):
    plan, trials = tiny_plan("F", batch__micro="max", batch__search=search), []
    while len(trials) < 4 and (trial := next_trial(plan, trials)):
        trials.append(result_of(trial, RunStatus.SUCCESS if trial.batch.micro < 4 else RunStatus.OOM))
    assert [trial.batch.micro for trial in trials] == tried


def test_a_search_that_began_high_tries_half_of_what_it_found_too(tiny_plan, result_of, monkeypatch):
    monkeypatch.setattr("llmexp.training.largest_batch.first_batch", lambda plan: 6)
    plan, trials = tiny_plan("F", batch__micro="max", batch__fits=1), []
    while trial := next_trial(plan, trials):
        trials.append(result_of(trial, RunStatus.SUCCESS if trial.batch.micro < 8 else RunStatus.OOM))
    assert [trial.batch.micro for trial in trials] == [6, 12, 9, 7, 8, 3]
    assert settled(plan, trials).batch.micro == 7


def test_a_search_begins_where_the_plans_arithmetic_ends(tiny_plan):
    plan = tiny_plan("F", batch__micro="max")
    assert first_batch(plan) == largest_micro(plan) > 1


def test_an_unfinished_search_settles_nothing(tiny_plan):
    plan = tiny_plan("F", batch__micro="max")
    assert settled(plan, []) == plan
    assert not plan.settled
    assert plan.amount == 0


def test_a_plan_that_was_lost_gets_its_batch_from_the_result(tiny_plan, result_of):
    plan = tiny_plan("F", batch__micro="max")
    ran = with_batch(plan, 7)
    assert get_task("pretrain").as_it_ran(plan, result_of(ran, RunStatus.SUCCESS)) == ran
    assert ran.settled
    given = tiny_plan("F", batch__micro=3)
    assert get_task("pretrain").as_it_ran(given, result_of(given, RunStatus.SUCCESS)) == given


def test_points_tell_of_each_trial_what_it_showed(tiny_plan, result_of):
    plan = tiny_plan("F", batch__micro="max")
    trial = next_trial(plan, [])
    assert trial
    fits = result_of(trial, RunStatus.SUCCESS, metrics={"tokens_per_s": Metric(mean=5.0), "peak_rss_bytes": None})
    fails = result_of(trial, RunStatus.OOM, reason="rank 0: no memory")
    points = points_of([fits, fails])
    assert [point.params for point in points] == [{"batch_micro": 1}] * 2
    assert [point.verdicts["fits"].answer for point in points] == ["yes", "no"]
    assert [list(point.metrics) for point in points] == [["tokens_per_s"], []]
    assert points[1].problem == "rank 0: no memory"


def test_runs_that_search_are_compared_as_such(tiny_plan):
    bisected = tiny_plan("F", batch__micro="max", hardware__memory_limit_bytes=3e8)
    assert bisected.comparison_key["batch"] == "max"
    assert bisected.comparison_key["memory limit"] == "0.3 GB a rank"
    assert tiny_plan("F", batch__micro="max", batch__search="pow2").comparison_key["batch"] == "max of powers of 2"
    assert tiny_plan("F", batch__micro=2).comparison_key["memory limit"] == ""


def test_on_cpu_a_search_has_a_limit_and_a_gpu_its_own_memory(tiny_plan):
    assert tiny_plan("F", batch__micro="max").config.hardware.memory_limit_bytes
    assert tiny_plan("F", batch__micro=1).config.hardware.memory_limit_bytes is None
    assert tiny_plan("F", batch__micro="max", hardware__name="a800").config.hardware.memory_limit_bytes is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hardware__nodes": 2}, "searches on one machine, and hardware.nodes=2: list the batches"),
        (
            {"engine": {"name": "script", "launcher": "spawn", "options": {"command": "train.py"}}},
            "engine=script runs your program: list its batches",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(tiny_plan, changes, said):
    with pytest.raises(ConfigError, match=said):
        tiny_plan("Naive", batch__micro="max", **changes)


@pytest.mark.parametrize("wrong", [{"micro": "most"}, {"micro": 0}, {"fits": 4}, {"search": "linear"}, {"largest": 0}])
def test_a_wrong_batch_is_refused(tiny_plan, wrong):
    with pytest.raises(ConfigError, match=rf"batch\.{next(iter(wrong))}"):
        tiny_plan("Naive", **{f"batch__{key}": value for key, value in ({"micro": "max"} | wrong).items()})


def test_a_plan_says_what_is_searched_for_and_what_is_expected(tiny_plan):
    plan = tiny_plan("F", batch__micro="max", batch__search="pow2", batch__largest=64)
    told = get_task("pretrain").describe(plan)["batch"]
    assert told.startswith(
        "the largest micro that fits up to 64, powers of 2, by short runs; it has to fit 2 of 3 times"
    )
    assert told.endswith(f"; {largest_micro(plan)} by the formula of activations")
