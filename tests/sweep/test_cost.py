"""Costs by hand: held seconds x devices / 3600, times the price."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planning import make_plan

from llmexp.launch.stack import stack_digest
from llmexp.record.result import Metric, RunResult
from llmexp.sweep.cost import Cost, cost_line, costs_of
from llmexp.sweep.measuring import folder_of
from llmexp.training.plan.training_plan import TrainingPlan

PAPER = {"hardware": {"name": "a800"}, "model__name": "7b", "data__seq_len": 350}
PAPER_PROTOCOL = {"measure__warmup_steps": 30, "measure__steps": 100, "measure__repeats": 3}


@pytest.fixture
def costs(tiny_plan: Callable[..., TrainingPlan]) -> Callable[..., list[Cost]]:
    """The costs of these methods, planned with the same changes."""

    def cost(*methods: str, **changes: Any) -> list[Cost]:
        plans = [tiny_plan(method, **changes) for method in methods]
        return costs_of(plans, [folder_of(plan) for plan in plans])

    return cost


@pytest.fixture
def ended(
    tiny_plan: Callable[..., TrainingPlan], result_of: Callable[..., RunResult], write_samples: Callable[..., None]
) -> Callable[..., TrainingPlan]:
    """Leave a run of 2 measured steps that took 40 s.

    Of these, 3 steps of 2 x 350 positions at 350 tokens/s took 6 s.
    """

    def end(method: str, status: str = "success", stack: str = "", **changes: Any) -> TrainingPlan:
        plan = tiny_plan(method, **changes)
        folder = folder_of(plan)
        folder.write(folder.plan_path, plan)
        write_samples(folder.repeat(0), 0, [(2.0, 1.0)] * 3, warmup=range(1))
        (folder.repeat(0) / "rank.0.json").write_text("{}")
        times = {"started_at": "2026-01-01T00:00:00+00:00", "ended_at": "2026-01-01T00:00:40+00:00"}
        metrics = {"tokens_per_s": Metric(mean=350.0)} if status == "success" else {}
        folder.write(
            folder.result_path, result_of(plan, status, metrics=metrics, stack=stack or stack_digest(plan), **times)
        )
        return plan

    return end


def test_nothing_measured_is_unknown(costs, here: Path):
    found = costs("Naive", "F")
    assert [(cost.held_s, cost.source, cost.device_hours, cost.usd) for cost in found] == [
        (None, "unknown", None, None)
    ] * 2
    assert (
        cost_line(found)
        == "expected cost: unknown, nothing like these runs has been measured in the outputs folder yet"
    )
    assert (
        cost_line(found[:1])
        == "expected cost: unknown, nothing like this run has been measured in the outputs folder yet"
    )
    assert list(here.iterdir()) == []


def test_microbenchmarks_take_at_most_the_limits_of_their_points(here: Path):
    words = ("task=micro", "micro=memory", "hardware=cpu", "micro.ranks=1", "micro.dtypes=[fp32]")
    plan = make_plan(*words, "micro.memory.bytes=[1e6,1e8]", "measure.repeats=3", "measure.point_limit_s=4")
    [cost] = costs_of([plan], [folder_of(plan)])
    assert (len(plan.points), cost.held_s, cost.source) == (2, 36.0, "limits")
    assert cost_line([cost]).startswith("expected cost: 1 run: at most about 36 s on 1 device (1 by the limits of")


def test_a_budget_of_seconds_is_at_least_what_it_costs(costs, ended):
    ended("Naive")
    (found,) = costs("Naive", measure__duration_s=600.0, measure__repeats=3)
    assert (found.held_s, found.source, found.sign) == (1800.0, "duration", "≥ ")


@pytest.mark.parametrize("status", ["success", "oom", "skipped"])
def test_an_answer_that_is_kept_costs_nothing(costs, ended, status):
    ended("F", status)
    [cost] = costs("F")
    assert (cost.held_s, cost.source, cost.device_hours, cost.usd) == (0.0, "nothing", 0.0, 0.0)
    assert cost_line([cost]) == "expected cost: none, every run already has an answer or is skipped"


@pytest.mark.parametrize(
    ("status", "held_s"), [("success", 40.0), ("oom", 40.0), ("timeout", 40.0), ("failed", None), ("killed", None)]
)
def test_a_run_measured_again_takes_what_it_took(costs, ended, status, held_s):
    ended("F", status, stack="another")
    [cost] = costs("F", rerun="stale")
    assert (cost.held_s, cost.source) == (held_s, "same" if held_s else "unknown")


def test_the_same_run_in_another_sweep_tells_too(costs, ended):
    ended("F", sweep={"name": "other", "outputs": "outputs"})
    assert [cost.source for cost in costs("F")] == ["same"]


def test_a_run_like_it_tells_start_up_and_rate(costs, ended):
    """Start-up 40 - 3 x 700 / 350 = 34 s, twice; 2 x (1 + 5) steps of 2 x 4 x 350 positions at 350 tokens/s: 96 s."""
    ended("F")
    [cost] = costs("F", batch={"micro": 4, "accumulation": 1}, measure__steps=5, measure__repeats=2)
    assert (cost.source, cost.held_s) == ("like", pytest.approx(2 * 34 + 96))
    assert cost.device_hours == pytest.approx(164 * 2 / 3600)


def test_the_nearest_batch_tells(costs, ended):
    ended("F", batch={"micro": 64, "accumulation": 1}, data__seq_len=512)
    ended("F", batch={"micro": 2, "accumulation": 1})
    [cost] = costs("F")
    # Start-up 40 - 3 x 1400 / 350 = 28 s, then 3 steps of 700 positions.
    assert cost.held_s == pytest.approx(28 + 6)


@pytest.mark.parametrize(
    "change",
    [{"precision__name": "other"}, {"model__name": "other"}, {"hardware__name": "h100"}, {"parallelism__dp": 1}],
)
def test_other_work_tells_nothing(costs, ended, change):
    ended("F")
    assert [cost.source for cost in costs("F", **change)] == ["unknown"]


def test_the_papers_cell_tells_where_nothing_was_measured(costs):
    """Naive 7B on 8 x A800: 3 x 130 steps of 8 x 350 positions at 7488.3 tokens/s; Z2 at 6101.6."""
    naive, zero2 = costs("Naive", "Z2", **PAPER, **PAPER_PROTOCOL)
    assert (naive.source, naive.held_s) == ("paper", pytest.approx(145.827, abs=1e-3))
    assert zero2.held_s == pytest.approx(178.970, abs=1e-3)
    assert naive.device_hours == pytest.approx(0.324061, abs=1e-6)
    assert naive.usd is None
    assert cost_line([naive, zero2]) == (
        "expected cost: 2 of 2 runs: 5 min 25 s on 8 devices; "
        "longest 7b Z2, 2 min 59 s (2 by the paper's tokens/s, start-up left out)"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"data__seq_len": 256},
        {"parallelism__dp": 4},
        {"batch": {"micro": 1, "accumulation": 2}},
        {"model__name": "9b"},
        {"hardware": {"name": "rtx4090"}},
    ],
)
def test_the_papers_cell_is_of_its_own_work_alone_and_tells_nothing_where_it_ran_out_of_memory(costs, change):
    assert [cost.source for cost in costs("Naive", **PAPER | change)] == ["unknown"]


def test_a_search_for_the_batch_is_of_unknown_cost(costs):
    (searching,) = costs("Naive", **PAPER, batch__micro="max")
    assert (searching.held_s, searching.source) == (None, "unknown")


def test_what_was_measured_goes_before_the_papers_cell(costs, ended):
    ended("Naive", **PAPER | {"batch": {"micro": 2, "accumulation": 1}})
    assert [cost.source for cost in costs("Naive", "Z2", **PAPER)] == ["like", "paper"]


LONG = {"hardware__name": "h100", "hardware__device": "cuda", "measure__steps": 10**8}
PEAK = {"hardware__peak_flops_per_s": {"bf16": 1e14, "fp32": 1e13}}


def test_a_run_takes_at_least_its_flops_at_the_peak_of_its_arithmetic(costs):
    """10**8 + 1 steps of 350 tokens on each device, in bf16 products, whatever peaks it has besides."""
    [cost] = costs("R", **LONG | PEAK)
    held_s = (10**8 + 1) * 350 * cost.plan.flops_per_amount / 1e14
    assert (cost.source, cost.held_s) == ("peak", pytest.approx(held_s))
    assert cost_line([cost]).startswith("expected cost: 1 run: at least 44 min 32 s on 8 devices")
    assert cost_line([cost]).endswith("(1 by their FLOPs at the devices' peak)")
    limits = Cost(cost.plan, 60.0, "limits")
    assert "2 of 2 runs: at least 45 min 32 s on 8 devices" in cost_line([cost, limits])


@pytest.mark.parametrize(
    "change",
    [
        {"measure__steps": 10**5},
        {"hardware__peak_flops_per_s": {}},
        {"hardware__peak_flops_per_s": {"tf32": 1e14}},
        {"budget": {"device_hours": 100.0}},
        {"measure__stop_at_interval_share": 0.01, "measure__repeats": 3},
        {"data__seq_len_schedule": [175, 350]},
    ],
    ids=["under a minute", "no peak", "the peak of another dtype", "a budget", "ends early", "shorter steps"],
)
def test_a_peak_that_would_say_little_says_nothing(costs, change):
    [cost] = costs("R", **LONG | PEAK | change)
    assert (cost.source, cost.held_s) == ("unknown", None)


def test_money_is_shown_where_every_known_run_has_a_price(costs):
    """0.324061 device-hours at 2 USD, and one run that nobody knows."""
    hardware = {"name": "a800", "price_per_device_hour_usd": 2.0}
    [priced] = costs("Naive", **PAPER | {"hardware": hardware}, **PAPER_PROTOCOL)
    assert priced.usd == pytest.approx(0.648122, abs=1e-6)
    [unknown] = costs("F")
    assert cost_line([priced, unknown]).startswith(
        "expected cost: 1 of 2 runs: 2 min 26 s on 8 devices, 0.65 USD; longest 7b Naive, 2 min 26 s"
    )
    assert cost_line([priced, unknown]).endswith("(1 by the paper's tokens/s, start-up left out, 1 unknown)")


def test_runs_on_other_numbers_of_devices_are_told_apart_and_large_sums_in_device_hours_too(costs):
    """Runs of 13 h 36 min on 2 devices (27.2 device-hours) and of 14 s on 1."""
    [on_two], [on_one] = costs("F"), costs("F", parallelism__dp=1)
    known = [Cost(on_two.plan, 13 * 3600.0 + 36 * 60, "same"), Cost(on_one.plan, 14.0, "same")]
    told = (
        "14 s on 1 device and 13 h 36 min on 2 devices, 27.2 device-hours; "
        "longest tiny F, 13 h 36 min (2 by their own earlier time)"
    )
    assert cost_line(known) == f"expected cost: 2 of 2 runs: {told}"
    assert cost_line(known[1:]) == "expected cost: 1 run: 14 s on 1 device (1 by their own earlier time)"


def test_a_run_that_is_certain_not_to_start_costs_nothing(costs):
    skipped = costs("Naive", hardware__name="a800", parallelism__tp=2)
    short = costs(
        "Naive",
        hardware={
            "name": "a800",
            "device": "cuda",
            "devices_per_node": 8,
            "memory_bytes": 1000,
            "peak_flops_per_s": {},
        },
    )
    assert [cost.source for cost in skipped + short] == ["nothing", "nothing"]
