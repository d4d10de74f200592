"""The pilot of a server, and what its rates say: by hand, 8 requests of 32 tokens at 256 tokens/s take a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served_requests import serving_plan

from llmexp.record.result import Metric, ResultPoint, RunResult, Turn
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.task import SERVE
from llmexp.sweep.cost import cost_line, costs_of
from llmexp.sweep.measuring import folder_of
from llmexp.sweep.pilot import Pace, piloted

MANY = ("serve.requests=1000", "serve.output.tokens=32")


def few(*words: str) -> list[tuple[str, int]] | None:
    pilot = SERVE.pilot(serving_plan(*MANY, *words))
    return pilot and [(str(point), point.requests) for point in pilot.points]


def ended(plan: ServingPlan, *loads: dict[str, float], seconds: int = 0) -> RunResult:
    """Whose loads had these rates, in a repeat of so many seconds."""
    points = [
        ResultPoint(params=point.params, metrics={name: Metric(mean=mean) for name, mean in load.items()})
        for point, load in zip(plan.points, loads, strict=True)
    ]
    begin, end = (f"2026-01-01T00:00:{second:02}+00:00" for second in (0, seconds))
    names: dict[str, Any] = {
        name: getattr(plan.config, name).name for name in ("task", "engine", "model", "hardware", "sweep")
    }
    return RunResult(
        id=plan.id,
        status="success",
        processes=1,
        devices=1,
        command=plan.rerun_command,
        stack="0123456789ab",
        points=points,
        turns=[Turn(repeat=0, began_at=begin, ended_at=end)],
        **names,
    )


def tokens(per_s: float) -> dict[str, float]:
    return {"output_tokens_per_s": per_s, "requests_per_s": 1.0}


def test_a_pilot_has_as_many_requests_as_are_at_work_at_a_time() -> None:
    loads, vllm = ("serve.rate=5,max", "serve.concurrency=1,8,64"), ("engine=vllm", "engine.options.max_sequences=32")
    assert few(*loads) == [("max", 256), ("1 at a time", 4), ("8 at a time", 8), ("64 at a time", 64)]
    assert few(*loads, *vllm) == [("max", 32), ("1 at a time", 4), ("8 at a time", 8), ("64 at a time", 32)]


def test_where_outputs_differ_in_length_a_pilot_has_twice_as_many_requests() -> None:
    uneven = "serve.output.tokens=[8,32]"
    assert few("serve.rate=[]", "serve.concurrency=1,8", uneven) == [("1 at a time", 4), ("8 at a time", 16)]
    assert few("serve.rate=[]", "serve.concurrency=8", uneven, "serve.requests=12", "measure.repeats=9") == [
        ("8 at a time", 12)
    ]


def test_a_pilot_has_the_server_and_the_warm_up_of_its_run() -> None:
    plan = serving_plan(*MANY, "measure.repeats=3")
    pilot = SERVE.pilot(plan)
    assert pilot
    assert (pilot.server, pilot.points[0].warmup, pilot.positions) == (plan.server, 32, plan.positions)
    assert (pilot.name, pilot.config.measure.repeats) == (f"{plan.name} pilot", 1)


@pytest.mark.parametrize(
    "words",
    [
        ("serve.rate=5",),
        ("serve.concurrency=8", "serve.search.start_per_s=1", "serve.requests=300"),
        ("serve.concurrency=8", "serve.profile=true"),
        ("serve.concurrency=8", "engine=vllm", "serve.address=http://localhost:1"),
        ("serve.rate=max", "serve.requests=700"),
    ],
    ids=["rates", "search", "profile", "runs already", "more than a third of the run"],
)
def test_no_pilot_where_it_would_not_tell_or_take_long(words: tuple[str, ...]) -> None:
    assert few(*words) is None


def test_under_a_budget_a_pilot_may_take_long() -> None:
    assert few("serve.rate=max", "budget.device_hours=1") == [("max", 256)]


def test_requests_take_their_output_tokens_at_the_rates_of_the_pilots_loads() -> None:
    plan = serving_plan(*MANY, "serve.rate=[]", "serve.concurrency=1,8", "serve.turns=2", "engine=vllm")
    pilot = SERVE.pilot(plan)
    assert pilot
    seen = ended(pilot, tokens(80.0), tokens(320.0))
    # 1000 conversations of 2 x 32 tokens; those of the pilot are 4 and 8.
    assert SERVE.samples_s(plan, seen) == 64000 / 80 + 64000 / 320
    assert SERVE.samples_s(pilot, seen) == 256 / 80 + 512 / 320


def test_outputs_of_different_lengths_count_as_they_are_drawn_and_uncounted_ones_by_requests() -> None:
    plan = serving_plan("serve.rate=[]", "serve.concurrency=2", "serve.requests=40", "serve.output.tokens=[1,63]")
    pilot = SERVE.pilot(plan)
    assert pilot
    times = [SERVE.samples_s(each, ended(pilot, tokens(10.0))) for each in (pilot, plan)]
    assert times[1] == pytest.approx(40 * 32 / 10, rel=0.2)
    assert times[0] != pytest.approx(4 * 32 / 10, rel=1e-3)
    assert SERVE.samples_s(plan, ended(pilot, {"requests_per_s": 4.0})) == 10.0
    assert SERVE.samples_s(plan, ended(pilot, {})) == 0.0


def test_a_load_at_a_rate_takes_as_long_as_it_is_sent_or_as_the_server_would_take() -> None:
    plan = serving_plan(*MANY, "serve.rate=5,100", "serve.concurrency=8", "serve.warmup_requests=10")
    pilot = SERVE.pilot(plan)
    assert pilot
    # 1010 requests at 5/s; 1000 at 10/s, as the pilot's, in place of 100/s.
    assert SERVE.samples_s(plan, ended(pilot, tokens(320.0))) == 1010 / 5 + 100 + 100


def test_a_sweep_says_what_its_servers_take_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plans = [
        serving_plan(*MANY, "serve.rate=[]", "serve.concurrency=8", "measure.repeats=4", f"serve.prompt.tokens={each}")
        for each in (8, 16)
    ]
    # A request of 8 in a second is 1 of 20 s; the second run has twice the rate.
    rates = iter((256.0, 512.0))
    monkeypatch.setattr("llmexp.launch.run.run_one", lambda plan, _: ended(plan, tokens(next(rates)), seconds=20))
    found = piloted(costs_of(plans, [folder_of(plan) for plan in plans]))
    assert [(cost.source, cost.held_s) for cost in found] == [
        ("requests", 4 * (19 + 125)),
        ("requests", 4 * (19.5 + 62.5)),
    ]
    assert cost_line(found).startswith("expected cost: 2 of 2 runs: at most about 15 min 4 s on 1 device")
    assert cost_line(found).endswith("(2 by requests measured just now)")


@pytest.mark.parametrize(("took_s", "other"), [(100.0, "requests"), (200.0, "unknown")])
def test_a_server_of_which_nothing_is_known_counts_as_long_as_the_piloted_one(
    took_s: float, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of 4 x (19 + 125) s are more than ten times a pilot of 100 s, and less than ten of 200 s."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("llmexp.sweep.pilot._measured", lambda _: Pace(lambda _: 125.0, 19.0, took_s))
    words = (*MANY, "serve.rate=[]", "serve.concurrency=8", "measure.repeats=4")
    plans = [serving_plan(*words, f"serve.prompt.tokens={tokens}") for tokens in (8, 16)]
    found = piloted(costs_of(plans, [folder_of(plan) for plan in plans]))
    assert [cost.source for cost in found] == ["requests", other]
