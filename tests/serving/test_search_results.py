"""The results of a search's probes, and what its plan says and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_requests import answer, repeat, serving_plan

from llmexp.errors import ConfigError
from llmexp.serving.metrics import METRICS
from llmexp.serving.plan.load_points import probe_of
from llmexp.serving.plan.probes import probes_path
from llmexp.serving.points import read_begun, results, results_until_now
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.task import SERVE
from llmexp.serving.verdicts import search_end, verdicts

PLAN = serving_plan("serve.rate=max", "serve.requests=60", "serve.search.most_probes=2")
FIRST, SECOND = (probe_of(PLAN.config.serve, 1 + place, 1 + place, rate) for place, rate in enumerate((1.0, 2.0)))
BURST = [answer(index) for index in range(60)]


def easy(point: int, rate_per_s: float) -> list[RequestSample]:
    """A load that a server keeps up with: each request is answered before the next one is due."""
    return [answer(index, index / rate_per_s, 0.1, point=point) for index in range(60)]


def test_each_probe_of_each_repeat_has_a_result() -> None:
    one = repeat(*BURST, *easy(1, 1.0), *easy(2, 2.0), probes=[FIRST, SECOND])
    other = repeat(*BURST, *easy(1, 1.0), probes=[FIRST])
    found = results(PLAN, [one, other])
    assert [point.params for point in found] == [
        {"load": "open", "rate_per_s": "max"},
        {"load": "open", "rate_per_s": 1.0, "probe": 1, "repeat": 1},
        {"load": "open", "rate_per_s": 2.0, "probe": 2, "repeat": 1},
        {"load": "open", "rate_per_s": 1.0, "probe": 1, "repeat": 2},
    ]
    burst = found[0].metrics["requests_per_s"]
    probe = found[1].metrics["requests_per_s"]
    assert burst
    assert probe
    assert (burst.n, probe.n) == (2, 1)
    assert [point.verdicts["load"].answer for point in found[1:]] == ["kept_up"] * 3


def test_the_metrics_of_a_run_count_its_probes() -> None:
    plan = serving_plan("serve.rate=[]", "serve.requests=60", "serve.search=true")
    probe = probe_of(plan.config.serve, 0, 1, 1.0)
    found = METRICS.measure([repeat(*easy(0, 1.0), probes=[probe])], plan)
    assert found["requests_per_s"]
    assert found["requests_per_s"].mean == pytest.approx(60 / 59.1)


def test_a_search_says_where_it_ended_and_why() -> None:
    search = PLAN.config.serve.search
    assert search
    probes = results(PLAN, [repeat(*BURST, *easy(1, 1.0), *easy(2, 2.0), probes=[FIRST, SECOND])])[1:]
    words = "at least 2 requests/s; it ended because 2 probes, as many as are allowed, were made"
    assert search_end(probes, search) == words
    assert search_end(probes[:1], search) == "did not end: after 1 probes 2 requests/s would have been next"


def test_a_search_that_was_killed_has_its_probes(tmp_path: Path) -> None:
    probes_path(tmp_path).write_text("".join(each.model_dump_json() + "\n" for each in (FIRST, SECOND)))
    samples = [*BURST, *easy(1, 1.0), *easy(2, 2.0)[:7]]
    lines = "".join(each.model_dump_json() + "\n" for each in samples)
    (tmp_path / "samples.0.jsonl").write_text(lines)
    found = SERVE.points_until_now(PLAN, tmp_path)
    assert [point.params.get("rate_per_s") for point in found] == ["max", 1.0, 2.0]
    assert found[1].verdicts["load"].answer == "kept_up"
    assert found[2].problem.startswith("the run ended with 7 of 60 requests answered, 0 failed and 53 in")
    assert PLAN.config.serve.search
    assert search_end(found[1:], PLAN.config.serve.search) == f"ended after probe 2: {found[2].problem}"


def test_a_file_that_holds_no_probes_costs_no_other_load(tmp_path: Path) -> None:
    probes_path(tmp_path).write_text("{}\n")
    assert read_begun(tmp_path) == []
    (tmp_path / "samples.0.jsonl").write_text("".join(each.model_dump_json() + "\n" for each in BURST))
    (found,) = results_until_now(PLAN, tmp_path)
    assert found.metrics["requests_per_s"]


def test_how_many_requests_a_search_takes_is_not_known_in_advance() -> None:
    assert (PLAN.samples, PLAN.measured_samples) == (0, 0)
    assert PLAN.comparison_key["loads"] == "max, search from 1/s"
    # As many may be at work as a server is planned for at most.
    alone = serving_plan("serve.rate=[]", "serve.requests=100", "serve.search=true")
    assert alone.server.command == serving_plan("serve.rate=max", "serve.requests=5000").server.command
    assert alone.comparison_key["prompt"] == "64 tokens"


def test_probes_at_high_rates_have_more_requests() -> None:
    serve = serving_plan("serve.requests=300", "serve.search.least_s=20").config.serve
    counts = [probe_of(serve, 1, 1, rate).requests for rate in (1.0, 15.0, 40.0, 10_000.0)]
    assert counts == [300, 300, 800, 10_000]


def test_a_search_with_few_requests_is_warned_of() -> None:
    assert "serve.requests=60: a search needs 300 to 1000 requests a probe" in SERVE.warning(PLAN)
    assert SERVE.warning(serving_plan("serve.requests=300", "serve.search=true")) == ""
    assert SERVE.warning(serving_plan("serve.requests=3")) == ""


@pytest.mark.parametrize("words", ["serve.search=true", "serve.search={}", "serve.search.start_per_s=1"])
def test_a_search_is_asked_for_by_a_word_or_by_its_keys(words: str) -> None:
    search = serving_plan(words).config.serve.search
    assert search
    assert (search.start_per_s, search.tolerance, search.most_probes) == (1.0, 0.1, 12)
    assert serving_plan("serve.search=false").id == serving_plan().id


def test_turns_are_requests_of_their_own(tmp_path: Path) -> None:
    plan = serving_plan("serve.rate=2", "serve.requests=5", "serve.warmup_requests=1", "serve.turns=3")
    assert (plan.samples, plan.measured_samples, plan.positions) == (18, 15, 3 * (64 + 32))
    assert (
        serving_plan("serve.turns=3", "serve.think_time_s=0.5").comparison_key["turns"] == "3 turns, 0.5 s between them"
    )
    answers = [answer(index, index // 3, turn=index % 3, takes_s=1.0 + index % 3) for index in range(15)]
    (point,) = results(plan, [repeat(*answers)])
    assert point.verdicts["load"].answer == "unknown", "five conversations tell nothing"
    found = {name: metric.mean for name, metric in point.metrics.items() if metric}
    assert (found["first_turn_ttft_p50_s"], found["later_turns_ttft_p50_s"]) == (0.5, 1.25)
    (tmp_path / "samples.0.jsonl").write_text("".join(each.model_dump_json() + "\n" for each in answers))
    (until_now,) = results_until_now(plan, tmp_path)
    assert until_now.metrics["requests_per_s"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("serve.search.start_per_s=0", r"serve.search.start_per_s=0: must be a number above 0"),
        ("serve.search.tolerance=0.01", r"serve.search.tolerance=0.01: must be a number of at least 0.02"),
        ("serve.search.most_probes=0", r"serve.search.most_probes=0: must be a whole number of at least 1"),
        ("serve.search=fast", r"serve.search=fast: must be a section with start_per_s, tolerance, most_probes"),
        ("serve.turns=0", r"serve.turns=0: must be a whole number of at least 1"),
        ("serve.turns=2 serve.search=true", r"serve.turns=2: serve.search judges single requests"),
        ("serve.think_time_s=2", r"serve.think_time_s=2 is the time between turns: set serve.turns"),
        ("serve.turns=2 serve.trace.file=a.csv", r"serve.turns=2: the requests of serve.trace are single ones"),
        ("serve.turns=50", r"50 turns x \(prompt 64 \+ output 32\) = 4800 tokens are more than model.max_positions"),
    ],
)
def test_what_cannot_be_searched_or_said_has_one_line(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        serving_plan(*words.split())
    assert "\n" not in str(refused.value)


def test_conversations_are_judged_by_how_many_are_not_over() -> None:
    """One begins each second and has two turns: in overload each lasts longer than the one before it."""
    plan = serving_plan("serve.rate=1", "serve.requests=100", "serve.turns=2")

    def verdict_of(growth: float) -> str:
        turns = [
            answer(
                2 * number + turn, due_s=number + turn * (1 + growth * number), takes_s=1 + growth * number, turn=turn
            )
            for number in range(100)
            for turn in range(2)
        ]
        return verdicts(plan.points[0], plan.config.serve.slo, [turns])["load"].answer

    assert verdict_of(0.0) == "kept_up"
    assert verdict_of(0.5) == "overloaded"
