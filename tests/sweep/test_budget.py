from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.record.folder import find_runs
from llmexp.schema import BudgetConfig
from llmexp.sweep.budget import left_out_line, within_budget
from llmexp.sweep.cost import Cost
from llmexp.training.plan.training_plan import TrainingPlan

HOUR_S = 3600.0
# Table III, 8 A800: 3 x 130 steps of 2800 positions at 7488.3 (Naive), 6101.6 (Z2), 5491.4 (Z3) tokens/s:
# 0.324, 0.398, 0.442 device-hours.
PAPER = ("experiment=paper_table03", "hardware=a800", "tracking=none", "model=7b", "method=Z3,Naive,Z2")


@pytest.fixture
def costs(tiny_plan: Callable[..., TrainingPlan]) -> Callable[..., list[Cost]]:
    """Runs on 2 ranks that take so many hours each; on hardware with a price where one is given."""

    def cost(*hours: float | None, price: float | None = None) -> list[Cost]:
        found = []
        for seed, held in enumerate(hours):
            plan = tiny_plan("F", seed=seed)
            hardware = plan.config.hardware.model_copy(update={"price_per_device_hour_usd": price})
            plan = plan.model_copy(update={"config": plan.config.model_copy(update={"hardware": hardware})})
            found.append(Cost(plan, None if held is None else held * HOUR_S, "same"))
        return found

    return cost


def test_without_a_budget_everything_is_allowed(costs):
    assert within_budget(costs(1, None, 1000), BudgetConfig()) == [True] * 3


def test_a_budget_that_suffices_refuses_nothing(costs):
    assert within_budget(costs(1, 2), BudgetConfig(device_hours=6.0)) == [True, True]


@pytest.mark.parametrize(
    ("hours", "budget", "message"),
    [
        (
            (1, 2),
            {"device_hours": 5.9},
            "budget.device_hours=5.9: the sweep is expected to take 6 device-hours (3 h on 2 devices);",
        ),
        (
            (1, None, 2),
            {"device_hours": 100.0},
            "the cost of 1 of 3 runs, such as tiny F, is unknown; budget.when_over=trim",
        ),
        ((1, 2), {"usd": 17.9}, "budget.usd=17.9: the sweep is expected to take 18.00 USD;"),
        ((1, 2), {"usd": 18.0, "device_hours": 1.0}, "budget.device_hours=1"),
        (
            (2, None, 1),
            {"device_hours": 1.9, "when_over": "trim"},
            "budget.device_hours=1.9 allows no run: the cheapest, tiny F, is expected to take 2 device-hours, "
            "1 h on 2 devices",
        ),
    ],
)
def test_a_budget_that_does_not_suffice_refuses(costs, hours, budget, message):
    with pytest.raises(ConfigError) as caught:
        within_budget(costs(*hours, price=3.0), BudgetConfig(**budget))
    assert message in str(caught.value)


def test_money_without_a_price_is_refused(costs):
    with pytest.raises(ConfigError, match=r"hardware=cpu has no price: set hardware\.price_per_device_hour_usd"):
        within_budget(costs(1), BudgetConfig(usd=5.0))


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [
        ({"device_hours": 8.0}, [False, True, True, False]),
        ({"device_hours": 7.9}, [False, True, False, False]),
        ({"usd": 24.0}, [False, True, True, False]),
        ({"usd": 8.9, "device_hours": 100.0}, [False, True, False, False]),
    ],
)
def test_trimming_keeps_the_cheapest(costs, budget, allowed):
    """4, 1, 3 hours and an unknown time on 2 ranks, at 3 USD a device-hour."""
    found = costs(4, 1, 3, None, price=3.0)
    assert within_budget(found, BudgetConfig(**budget, when_over="trim")) == allowed


def test_what_costs_nothing_stays(costs):
    assert within_budget(costs(0, 5), BudgetConfig(device_hours=1.0, when_over="trim")) == [True, False]
    assert within_budget(costs(0), BudgetConfig(usd=1.0)) == [True]


def test_what_is_left_out_is_named(costs):
    found = costs(4, 1, None)
    named = "tiny F (8 device-hours, 4 h on 2 devices), tiny F (an unknown time)"
    assert left_out_line(found, [False, True, False]) == f"left out by the budget, 2 of 3 runs: {named}"
    assert left_out_line(found, [True] * 3) == ""


def test_a_sweep_over_its_budget_starts_nothing(llmexp, runner, here: Path):
    code, out, err = llmexp(*PAPER, "budget.device_hours=1.1")
    assert (code, out, runner.ran) == (2, "", [])
    taken = "1.16 device-hours (8 min 44 s on 8 devices)"
    assert (
        err == f"llmexp: budget.device_hours=1.1: the sweep is expected to take {taken}; "
        "budget.when_over=trim keeps the cheapest runs\n"
    )
    assert list(here.iterdir()) == []


def test_a_trimmed_sweep_measures_the_cheapest_runs_and_names_the_rest(llmexp, runner, here: Path):
    code, out, _ = llmexp(*PAPER, "budget.device_hours=0.8", "budget.when_over=trim")
    assert code == 0
    assert runner.ran == ["7b Naive", "7b Z2"]
    assert out.splitlines()[:3] == [
        "2 runs of outputs/paper_table03 | 7b on 8 x a800: Naive, Z2",
        "expected cost: 2 of 2 runs: 5 min 25 s on 8 devices; "
        "longest 7b Z2, 2 min 59 s (2 by the paper's tokens/s, start-up left out)",
        "left out by the budget, 1 of 3 runs: 7b Z3 (0.442 device-hours, 3 min 19 s on 8 devices)",
    ]
    assert len(find_runs(here / "outputs")) == 2


def test_answers_that_are_there_take_nothing_of_the_budget(llmexp, runner):
    llmexp(*PAPER, "budget.device_hours=0.8", "budget.when_over=trim")
    runner.ran.clear()
    code, out, _ = llmexp(*PAPER, "budget.device_hours=0.5")
    assert code == 0
    assert runner.ran == ["7b Z3"]
    assert "(2 answered or skipped already, 1 by the paper's tokens/s, start-up left out)" in out


def test_a_plan_of_several_runs_ends_with_their_cost(llmexp):
    _, out, _ = llmexp("plan", *PAPER)
    assert out.splitlines()[-1].startswith(
        "expected cost: 3 of 3 runs: 8 min 44 s on 8 devices, 1.2 device-hours; longest 7b Z3, 3 min 19 s"
    )
    assert "expected cost" not in llmexp("plan", *PAPER, "--json")[1]


def test_a_budget_is_of_the_whole_sweep(llmexp, runner):
    assert "budget apply to a whole sweep" in llmexp("method=F", "budget.usd=1,2", "tracking=none")[2]


def test_a_budget_does_not_change_which_run_it_is(tiny_plan):
    assert tiny_plan("F").id == tiny_plan("F", budget={"usd": 1.0}).id
