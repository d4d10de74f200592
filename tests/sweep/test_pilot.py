"""Costs by hand: 4 s of each repeat besides its steps, and these at the pilot's rate."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmexp.errors import RecordError
from llmexp.launch.attempt import only_attempt
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import Metric, RunResult, RunStatus, Turn
from llmexp.registry import get_task
from llmexp.sweep import pilot
from llmexp.sweep.cost import Cost, costs_of
from llmexp.sweep.measuring import folder_of
from llmexp.sweep.pilot import Pace
from llmexp.training.plan.training_plan import TrainingPlan


def pace(tokens_per_s: float, other_s: float) -> Pace:
    return Pace(lambda plan: plan.samples * plan.amount / tokens_per_s, other_s, took_s=200.0)


# 2 x 350 positions a step, so that a step takes a second.
SEEN = pace(700.0, other_s=4.0)
LONG = {"measure__warmup_steps": 10, "measure__steps": 40, "measure__repeats": 8, "data__seq_len": 350}
REAL = (
    *("model=tiny", "hardware=cpu", "engine=torch", "engine.launcher=fork", "tracking=none", "data=synthetic"),
    *("model.num_layers=1", "data.seq_len=32", "measure.threads_per_rank=1", "measure.profile=false"),
)


class Pilots:
    """Stands in for the pilots' measurement, which ends as it is told: SEEN, or None where a pilot fails."""

    def __init__(self) -> None:
        self.ends: list[Pace | None] = []
        self.ran: list[str] = []

    def __call__(self, plan: TrainingPlan) -> Pace | None:
        self.ran.append(plan.name)
        return self.ends.pop(0) if self.ends else SEEN


@pytest.fixture
def pilots(monkeypatch: pytest.MonkeyPatch, here: Path) -> Pilots:
    fake = Pilots()
    monkeypatch.setattr(pilot, "_measured", fake)
    return fake


@pytest.fixture
def costs(tiny_plan: Callable[..., TrainingPlan]) -> Callable[..., list[Cost]]:
    """What these methods' costs become."""

    def of(*methods: str, **changes: Any) -> list[Cost]:
        plans = [tiny_plan(method, **LONG | changes) for method in methods]
        return pilot.piloted(costs_of(plans, [folder_of(plan) for plan in plans]))

    return of


def held(found: Sequence[Cost]) -> list[tuple[str, float | None]]:
    return [(cost.source, cost.held_s) for cost in found]


def test_one_run_is_piloted_and_the_others_follow_by_their_flops(costs, pilots):
    naive, recomputed = costs("Naive", "R")
    assert pilots.ran == ["tiny Naive pilot"]
    assert held([naive]) == [("pilot", 8 * (4 + 50))]
    slower = recomputed.plan.flops_per_amount / naive.plan.flops_per_amount
    assert 1.2 < slower < 4 / 3
    assert held([recomputed]) == [("flops", pytest.approx(8 * (4 + 50 * slower)))]


def test_every_run_has_a_pilot_where_all_of_them_take_little_of_the_sweep(costs, pilots):
    pilots.ends = [SEEN, pace(350.0, other_s=5.0), None]
    # 3 runs of 8 x (4 + 300) s or more are 7296 s: more than 10 x 2 x 200 s.
    naive, zero, fused = costs("Naive", "Z3", "F", measure__steps=290)
    assert pilots.ran == ["tiny Naive pilot", "tiny Z3 pilot", "tiny F pilot"]
    assert held([naive, zero]) == [("pilot", 8 * (4 + 300)), ("pilot", 8 * (5 + 600))]
    assert held([fused]) == [("flops", 8 * (4 + 300))]
    pilots.ran.clear()
    costs("Naive", "Z3", "F", measure__steps=90)
    assert pilots.ran == ["tiny Naive pilot"]


def test_under_a_budget_every_run_has_a_pilot_of_its_own_and_none_goes_by_anothers_flops(costs, pilots):
    pilots.ends = [pace(350.0, other_s=5.0), None]
    naive, zero = costs("Naive", "Z3", measure__repeats=1, budget={"device_hours": 1.0})
    assert pilots.ran == ["tiny Naive pilot", "tiny Z3 pilot"]
    assert held([naive, zero]) == [("pilot", 5 + 100), ("unknown", None)]


def test_a_pilot_that_fails_gives_way_to_the_next_run(costs, pilots):
    pilots.ends = [None, SEEN]
    assert [source for source, _ in held(costs("Naive", "F", "R"))] == ["flops", "pilot", "flops"]
    assert pilots.ran == ["tiny Naive pilot", "tiny F pilot"]


def test_after_three_that_failed_the_sweep_starts_without_knowing(costs, pilots):
    pilots.ends = [None] * 4
    assert held(costs("Naive", "F", "R", "F+R")) == [("unknown", None)] * 4
    assert len(pilots.ran) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"measure__repeats": 7},
        {"sweep__pilot": False},
        {"data__seq_len_schedule": [175, 350]},
        {"hardware__nodes": 2},
        {"batch__micro": "max"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_no_pilot_where_it_would_not_pay_or_not_tell(changes, costs, pilots):
    [cost] = costs("Naive", **changes)
    assert (held([cost]), pilots.ran) == ([("unknown", None)], [])


def test_a_pilot_takes_a_few_steps_and_keeps_nothing(tiny_plan):
    plan = tiny_plan("L", task__name="finetune", task__save_model=True, measure__tokens=10**6)
    short = get_task("finetune").pilot(plan)
    assert (short.samples, short.config.measure.repeats) == (3, 2)
    assert (short.config.measure.tokens, short.config.task.save_model) == (None, False)
    assert (short.amount, short.method, short.dims) == (plan.amount, plan.method, plan.dims)


def test_few_starts_are_piloted_where_they_compute_for_long(costs, pilots):
    # 1.6e7 FLOPs a token of tiny, 700 tokens a step, 2 x 1e12 FLOP/s at most: 60 s are 1e7 steps or more.
    assert held(costs("Naive", measure__repeats=1, measure__steps=10**4)) == [("unknown", None)]
    assert [source for source, _ in held(costs("Naive", measure__repeats=1, measure__steps=10**8))] == ["pilot"]


def test_a_pilot_goes_before_the_devices_peak(costs, pilots):
    peak = {"hardware__peak_flops_per_s": {"bf16": 1e12, "fp32": 1e12}, "measure__steps": 10**8}
    assert [source for source, _ in held(costs("Naive", "R", sweep__pilot=False, **peak))] == ["peak", "peak"]
    assert [source for source, _ in held(costs("Naive", "R", **peak))] == ["pilot", "pilot"]


@pytest.mark.parametrize("error", [RecordError("the disk is full"), KeyboardInterrupt()])
def test_a_pilot_that_ends_early_leaves_nothing(error, tiny_plan, here: Path, monkeypatch):
    def fail(plan: TrainingPlan, folder: RunFolder) -> None:
        folder.event("running")
        assert find_runs(here / "outputs") == find_runs(here / "outputs" / plan.config.sweep.name) == []
        raise error

    monkeypatch.setattr("llmexp.launch.run.run_one", fail)
    found = costs_of([plan := tiny_plan("Naive", **LONG)], [folder_of(plan)])
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            pilot.piloted(found)
    else:
        assert pilot.piloted(found) == found
    assert [path.name for path in here.rglob("*")] == ["outputs", plan.config.sweep.name]


def test_what_a_killed_driver_left_is_removed_and_what_a_living_one_has_stays(costs, here: Path, monkeypatch):
    root = here / "outputs" / "main" / ".pilot"
    dead, alive = RunFolder(root / "1" / "run"), RunFolder(root / "2" / "run")
    dead.event("running")
    monkeypatch.setattr("llmexp.launch.run.run_one", lambda plan, folder: None)
    with only_attempt(alive):
        costs("Naive")
        assert (dead.path.exists(), alive.path.exists()) == (False, True)
    costs("Naive")
    assert not root.exists()


def test_the_pace_is_that_of_the_second_start(tiny_plan, result_of, here: Path, monkeypatch):
    plan = tiny_plan("Naive", **LONG)
    turns = [
        Turn(repeat=0, began_at="2026-01-01T00:00:00+00:00", ended_at="2026-01-01T00:00:50+00:00"),
        Turn(repeat=1, began_at="2026-01-01T00:01:00+00:00", ended_at="2026-01-01T00:01:07+00:00"),
    ]

    def end(pilot: TrainingPlan, folder: RunFolder) -> RunResult:
        # 3 steps of 700 positions take 3 of the 7 s.
        return result_of(pilot, "success", metrics={"tokens_per_s": Metric(mean=700.0)}, turns=turns)

    monkeypatch.setattr("llmexp.launch.run.run_one", end)
    [cost] = pilot.piloted(costs_of([plan], [folder_of(plan)]))
    assert held([cost]) == [("pilot", 8 * (4 + 50))]


@pytest.mark.slow
@pytest.mark.ranks
def test_a_long_sweep_says_first_what_it_will_cost(llmexp, here: Path):
    code, out, err = llmexp("method=Naive,F", "measure=smoke", "measure.repeats=4", *REAL)
    assert code == 0, err
    line = next(line for line in out.splitlines() if line.startswith("expected cost"))
    assert re.fullmatch(
        r"expected cost: 2 of 2 runs: at least [\d.]+ s on 2 devices; longest tiny \w+, [\d.]+ s "
        r"\(1 by steps measured just now, 1 as if at the FLOP/s of these steps\)",
        line,
    )
    begun = [line.split(" · ")[0] for line in err.splitlines() if " · " in line]
    assert list(dict.fromkeys(begun)) == ["tiny Naive pilot", "tiny Naive", "tiny F"]
    runs = find_runs(here / "outputs")
    assert sorted(str(run.result().method) for run in runs) == ["F", "Naive"]
    assert {run.result().status for run in runs} == {RunStatus.SUCCESS}
    assert not list(here.glob("outputs/*/.pilot"))
