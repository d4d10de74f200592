"""The ranking of options by a goal."""

from __future__ import annotations

from functools import cache

import pytest

from llmexp.advice.goal import Goal, read_goal
from llmexp.advice.option import Option
from llmexp.advice.ranking import SAME, ranked
from llmexp.errors import ConfigError
from llmexp.report.training_budget import TrainingBudget
from llmexp.sweep.cost import Cost, Speed
from tests.planning import make_plan

A800 = ("model=13b", "hardware=a800")
SPEED = Goal("tokens_per_s")


@cache
def option(*words: str, measured: float | None = None) -> Option:
    plan = make_plan(*words)
    speed = Speed(measured / plan.devices, "this run before", is_own=True) if measured else None
    return Option(Cost(plan, None, "predicted", speed))


def test_the_fastest_that_fits_for_sure_is_first() -> None:
    slow, fast = option(*A800, "method=F+R+Z3+O"), option(*A800, "method=F+Z3")
    ranking = ranked([slow, fast], SPEED)
    assert [*ranking.sure] == [fast, slow]
    assert ranking.first is fast


def test_what_may_not_fit_is_apart_and_only_where_it_would_be_better() -> None:
    sizes = {batch: option(*A800, "method=F+Z3", f"batch.micro={batch}") for batch in (1, 8, 16, 64)}
    assert [one.verdict for one in sizes.values()] == ["yes", "yes", "uncertain", "no"]
    ranking = ranked(list(sizes.values()), SPEED)
    assert (ranking.first, [*ranking.perhaps], [*ranking.misfits]) == (sizes[8], [sizes[16]], [sizes[64]])
    slower = option(*A800, "method=F+R+Z3", "batch.micro=32", "optimizer=sgd")
    assert slower not in ranked([*sizes.values(), slower], SPEED).perhaps or slower.rate > sizes[8].rate


def test_only_what_may_fit_is_first_where_nothing_does_for_sure() -> None:
    may = option(*A800, "method=F+Z3", "batch.micro=16")
    assert ranked([may], SPEED).first is may


def test_a_measured_speed_takes_the_place_of_the_prediction() -> None:
    predicted, measured = option(*A800, "method=F+Z3"), option(*A800, "method=F+R+Z3", measured=1e6)
    ranking = ranked([predicted, measured], SPEED)
    assert ranking.first is measured
    assert measured.interval == (measured.rate, measured.rate)


def test_what_changes_more_and_is_no_faster_is_left_out() -> None:
    plain, changed = option(*A800, "method=F+Z3"), option(*A800, "method=F+Z3", "precision=bf16_pure")
    same = plain.rate * (1 + SAME / 2)
    as_fast = Option(Cost(changed.plan, None, "predicted", Speed(same / changed.plan.devices, "", is_own=True)))
    assert [*ranked([plain, as_fast], SPEED).sure] == [plain]
    faster = Option(Cost(changed.plan, None, "predicted", Speed(plain.rate, "", is_own=True)))
    assert [*ranked([plain, faster], SPEED).sure] == [faster, plain]


def test_among_equals_the_fewest_words_are_kept() -> None:
    short = option(*A800, "method=F+Z3")
    long = Option(Cost(make_plan(*A800, "method=F+Z3", "seed=1"), None, "predicted"))
    assert [*ranked([long, short], SPEED).sure] == [short]


def test_goals_order_by_money_and_by_memory() -> None:
    words = ("hardware.price_per_device_hour_usd=2",)
    one, eight = (option(*A800, "method=L+F", "task=finetune", *words, f"parallelism.dp={dp}") for dp in (1, 8))
    assert ranked([one, eight], SPEED).first is eight
    assert ranked([one, eight], Goal("tokens_per_usd")).first is one
    small, large = option(*A800, "method=F+R+Z3+O"), option(*A800, "method=F+Z3")
    assert ranked([large, small], Goal("fits")).first is small


def test_those_that_predictions_cannot_tell_apart_are_named() -> None:
    near, far = option(*A800, "method=F+Z3"), option(*A800, "method=F+R+Z3+O")
    assert near.rate > 2 * far.rate
    assert ranked([near, far], SPEED).undecided == [near]


def test_a_goal_that_is_not_one_says_what_is() -> None:
    with pytest.raises(ConfigError, match="unknown goal 'speed': choices are tokens_per_s, tokens_per_usd, time, fits"):
        read_goal("speed", None)
    with pytest.raises(ConfigError, match="say of which training, as in --for tokens=1e9"):
        read_goal("time", None)
    assert read_goal("time", TrainingBudget("tokens", 1e9, "1e9")).training


def test_a_training_takes_the_time_of_its_tokens() -> None:
    one = option(*A800, "method=F+Z3", "hardware.price_per_device_hour_usd=2")
    cost = one.training(TrainingBudget("tokens", 1e9, "1e9"))
    assert cost.time_s == pytest.approx(1e9 / one.rate)
    assert cost.usd == pytest.approx(8 * 2 * cost.time_s / 3600)
    assert one.tokens_per_usd == pytest.approx(1e9 / cost.usd)
