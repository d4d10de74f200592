"""Sequences that grow: equal shares of the steps, and FLOPs that are those of the positions computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmexp.errors import ConfigError
from llmexp.training.plan.seq_len_schedule import LengthSchedule
from llmexp.training.plan.training_plan import TrainingPlan

Plan = Callable[..., TrainingPlan]


def grown(tiny_plan: Plan, *lengths: int, method: str = "Naive", **changes: Any) -> TrainingPlan:
    return tiny_plan(
        method, data={"name": "text", "seq_len": lengths[-1], "seq_len_schedule": list(lengths)}, **changes
    )


def test_steps_pass_through_the_lengths_in_equal_shares_and_stay_at_the_last() -> None:
    schedule = LengthSchedule((64, 128, 256), warmup_steps=2, steps=7)
    assert [schedule.at(step) for step in range(11)] == [64] * 3 + [128] * 3 + [256] * 5


def test_the_mean_token_is_of_the_measured_window_alone() -> None:
    assert LengthSchedule((10, 20), warmup_steps=1, steps=3).of_mean_token == (1 * 10 * 10 + 2 * 20 * 20) / (
        10 + 2 * 20
    )
    assert LengthSchedule((20,), 1, 3).of_mean_token == 20


@pytest.mark.parametrize(("warmup_steps", "steps"), [(0, 3), (1, 9), (5, 6), (9, 1)])
def test_the_mean_token_is_that_of_all_steps_one_by_one(warmup_steps: int, steps: int) -> None:
    schedule = LengthSchedule((10, 17, 40), warmup_steps, steps)
    lengths = [schedule.at(step) for step in range(warmup_steps, warmup_steps + steps)]
    assert schedule.of_mean_token == sum(length**2 for length in lengths) / sum(lengths)


def test_a_plan_of_very_many_steps_counts_none_of_them(tiny_plan: Plan) -> None:
    assert grown(tiny_plan, 64, 256, measure__steps=10**9).samples > 10**9


def test_flops_lie_between_those_of_the_lengths(tiny_plan: Plan) -> None:
    of_one = [tiny_plan(data={"name": "text", "seq_len": length}).flops_per_token for length in (64, 256)]
    flops = grown(tiny_plan, 64, 256, measure__steps=9, measure__warmup_steps=1).flops_per_token
    assert flops == pytest.approx((4 * 64 * of_one[0] + 5 * 256 * of_one[1]) / (4 * 64 + 5 * 256))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"measure__warmup_steps": 1, "measure__steps": 1}, "has 3 lengths, and .* only 2 steps"),
        ({"measure__tokens": 10**6}, "measure.tokens leaves it open"),
        ({"measure__stop_at_interval_share": 0.1}, "measure.stop_at_interval_share leaves it open"),
    ],
)
def test_steps_that_are_too_few_or_unknown_are_errors(tiny_plan: Plan, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        grown(tiny_plan, 16, 32, 64, **changes)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"seq_len_schedule": [64, 32, 128]}, "must increase"),
        ({"seq_len_schedule": [64, 64, 128]}, "must increase"),
        ({"seq_len_schedule": [64]}, r"end at data\.seq_len=128"),
        ({"seq_len_schedule": [64, 128], "name": "instructions"}, "cuts sequences"),
        ({"name": "instructions", "files": ["a.jsonl"], "path": "b"}, "leave one of them out"),
    ],
)
def test_schedules_and_sources_that_cannot_be_are_one_line(tiny_plan: Plan, data: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        tiny_plan(data={"name": "text", "seq_len": 128} | data)


@pytest.mark.parametrize(
    ("method", "changes", "said"),
    [
        ("C", {}, "C compiles for one length"),
        (
            "Naive",
            {"engine": {"name": "megatron", "launcher": "spawn"}},
            "engine=megatron takes sequences of one length",
        ),
        ("Naive", {"parallelism": {"dp": 1, "cp": 2}}, "cp=2 is set up for sequences of one length"),
    ],
)
def test_what_cannot_grow_is_skipped_with_a_reason(
    tiny_plan: Plan, method: str, changes: dict[str, Any], said: str
) -> None:
    assert said in str(grown(tiny_plan, 64, 128, method=method, measure__steps=4, **changes).skip)
