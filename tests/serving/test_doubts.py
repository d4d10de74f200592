"""What makes a served load unreliable."""

from __future__ import annotations

import pytest
from served_requests import answer, floor, repeat, serving_plan

from llmexp.analysis.quantity import Measurement
from llmexp.record.result import Stability
from llmexp.serving.doubts import ALONE, doubts, judge_serving
from llmexp.serving.record.quality import QualitySummary

PLAN = serving_plan("serve.rate=max", "serve.requests=2")
QUIET = repeat(answer(0), answer(1), floors=[floor()])


def words(found: Stability) -> list[str]:
    return [doubt.words for doubt in found.reasons]


def test_a_quick_client_and_whole_answers_raise_no_doubt() -> None:
    assert list(doubts(PLAN, QUIET)) == []


def test_a_client_that_takes_a_twentieth_of_a_latency_is_named() -> None:
    slow = repeat(answer(0), answer(1), floors=[floor(ttft_p50_s=0.051, end_to_end_p50_s=0.09)])
    assert [doubt.words for doubt in doubts(PLAN, slow)] == [
        "client: 51.0 of 1,000 ms of the median time to first token at max are the client's own"
    ]


def test_answers_that_are_not_streamed_have_no_first_token_to_doubt() -> None:
    whole = repeat(*(answer(index, chunk_us=[]) for index in range(2)), floors=[floor(end_to_end_p50_s=0.09)])
    assert not [doubt.words for doubt in doubts(PLAN, whole) if "first token" in doubt.words]


def test_a_client_that_hardly_sends_faster_is_named() -> None:
    slow = repeat(answer(0), answer(1), floors=[floor(requests_per_s=10.0)])
    (said,) = doubts(PLAN, slow)
    assert said.words == "client: 1.00 requests/s at max, and it can itself send 10.0 to a server that answers at once"


@pytest.mark.parametrize(("expected", "doubted"), [([], True), (["engine.options.kv_dtype=fp8"], False)])
def test_answers_of_other_weights_are_another_work_unless_a_format_lets_expect_them(
    expected: list[str], doubted: bool
) -> None:
    quality = QualitySummary(verdict="changed", reason="90 of 100 agree", expected=expected)
    other = repeat(answer(0), answer(1), floors=[floor()], quality=quality)
    judged = judge_serving(PLAN, [other] * 3, [Measurement(4.0), Measurement(4.01), Measurement(3.99)], [])
    assert judged
    assert (judged.verdict == "unstable") == doubted
    assert [doubt.kind for doubt in judged.reasons] == ["answers"] * doubted


def test_failed_requests_are_named_with_their_first_problem() -> None:
    failing = repeat(answer(0), answer(1, problem="HTTP status 429: slow down"))
    assert [doubt.words for doubt in doubts(PLAN, failing)] == [
        "requests: 1 of 2 failed at max: HTTP status 429: slow down"
    ]


def test_one_repeat_is_not_known_to_be_stable_and_three_alike_are() -> None:
    one = judge_serving(PLAN, [QUIET], [Measurement(4.0)], [])
    three = judge_serving(PLAN, [QUIET] * 3, [Measurement(4.0), Measurement(4.01), Measurement(3.99)], [])
    wide = judge_serving(PLAN, [QUIET] * 3, [Measurement(4.0), Measurement(5.0), Measurement(3.0)], [])
    assert one
    assert three
    assert wide
    assert (one.verdict, words(one)) == ("unknown", [ALONE])
    assert (three.verdict, three.source) == ("stable", "repeats")
    assert (wide.verdict, words(wide)[0][:6]) == ("unknown", "noise:")


def test_without_the_clients_floor_nothing_is_known_to_be_stable() -> None:
    lacking = repeat(answer(0), answer(1), no_floors="the instant server did not start")
    rates = [Measurement(4.0), Measurement(4.01), Measurement(3.99)]
    found = judge_serving(PLAN, [QUIET, QUIET, lacking], rates, [])
    assert found
    assert found.verdict == "unknown"
    assert words(found) == ["client: its own share was not measured: the instant server did not start"]


def test_what_every_repeat_says_is_said_once() -> None:
    failing = repeat(answer(0), answer(1, problem="HTTP status 429: slow down"))
    found = judge_serving(PLAN, [failing] * 2, [Measurement(4.0), Measurement(4.0)], [])
    assert found
    assert words(found) == ["requests: 1 of 2 failed at max: HTTP status 429: slow down"]
