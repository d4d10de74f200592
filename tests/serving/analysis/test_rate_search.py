import random
from collections.abc import Callable

import pytest

from benchmarks.queues import SERVERS
from benchmarks.trust_serving import FAR, search
from llmexp.serving.analysis.rate_search import Found, RateSearch
from llmexp.serving.analysis.saturation_point import RateAnswer


def run(going: RateSearch, answer: Callable[[float], bool | None]) -> tuple[Found, list[float]]:
    answers: list[RateAnswer] = []
    while isinstance(step := going.step(answers), float):
        answers.append((step, answer(step)))
    return step, [rate for rate, _ in answers]


@pytest.mark.parametrize("capacity", [0.07, 0.99, 1.0, 6.3, 200.0])
def test_a_search_ends_around_the_capacity(capacity: float) -> None:
    end, rates = run(RateSearch(most_probes=20), lambda rate: rate <= capacity)
    assert end.saturation.low_per_s is not None
    assert end.saturation.high_per_s is not None
    assert end.saturation.low_per_s <= capacity < end.saturation.high_per_s <= 1.1 * end.saturation.low_per_s
    assert end.reason == "its ends are within 10% of each other"
    assert len(set(rates)) == len(rates)


def test_it_doubles_or_halves_and_then_takes_the_middle_of_the_ratio() -> None:
    assert run(RateSearch(), lambda rate: rate <= 5)[1] == [1, 2, 4, 8, 5.66, 4.76, 5.19]
    assert run(RateSearch(), lambda rate: rate <= 0.3)[1][:5] == [1, 0.5, 0.25, 0.354, 0.297]


def test_a_search_that_was_interrupted_goes_on_where_it_was() -> None:
    going, answers = RateSearch(), [(1.0, True), (2.0, True), (4.0, False)]
    assert going.step(answers) == going.step(list(reversed(answers))) == 2.83


def test_probes_are_bounded_and_what_is_known_then_is_said() -> None:
    high, rates = run(RateSearch(most_probes=4), lambda rate: True)
    assert (str(high.saturation), rates) == ("at least 8 requests/s", [1, 2, 4, 8])
    assert high.reason == "4 probes, as many as are allowed, were made"
    assert str(run(RateSearch(most_probes=4), lambda rate: False)[0].saturation) == "below 0.125 requests/s"


def test_an_unknown_rate_is_tried_once_more_and_then_passed_on_both_sides() -> None:
    end, rates = run(RateSearch(most_probes=30), lambda rate: None if 3.5 < rate < 4.5 else rate <= 4)
    assert rates[:5] == [1, 2, 4, 4, 8]
    assert rates.count(4) == 2
    assert end.saturation.low_per_s is not None
    assert end.saturation.high_per_s is not None
    assert end.saturation.low_per_s <= 3.5 < 4.5 <= end.saturation.high_per_s
    assert "could not be judged: more requests per point are needed" in end.reason


def test_nothing_but_unknown_rates_ends_the_search() -> None:
    end, rates = run(RateSearch(most_probes=30), lambda rate: None)
    assert rates == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]
    assert (str(end.saturation)[:7], end.reason) == (
        "unknown",
        "4 rates could not be judged: more requests per point are needed",
    )


def test_one_wrong_answer_that_another_contradicts_is_outvoted() -> None:
    # As when points of a list were measured first, and 2 failed by chance.
    answers: list[RateAnswer] = [(1.0, True), (2.0, False), (4.0, True), (8.0, False)]
    going = RateSearch(most_probes=20)
    assert going.step(answers) == 2.0
    while isinstance(step := going.step(answers), float):
        answers.append((step, step <= 5))
    assert step.saturation.contrary_per_s == []
    assert step.saturation.low_per_s is not None
    assert 4 <= step.saturation.low_per_s <= 5


def test_answers_that_go_on_contradicting_each_other_are_an_end_that_says_so() -> None:
    end, _ = run(RateSearch(start_per_s=1.0, most_probes=20), lambda rate: rate <= 1 or 3 < rate < 5)
    assert end.reason.startswith("its ends") or end.reason.startswith("answers contradict")
    answers: list[RateAnswer] = [(1.0, True)] + 3 * [(2.0, False), (4.0, True)]
    stuck = RateSearch(most_probes=20).step(answers)
    assert isinstance(stuck, Found)
    assert stuck.reason == "verdicts contradict each other even after retries"
    assert stuck.saturation.contrary_per_s == [4.0]


@pytest.mark.parametrize("server", SERVERS[:4], ids=[server.name for server in SERVERS[:4]])
def test_with_real_verdicts_on_simulated_servers_the_rate_is_near_the_capacity(server) -> None:
    draw = random.Random(1)
    ends = [search(server, 1000, draw)[0].saturation for _ in range(5)]
    near = [
        end.low_per_s is not None
        and end.high_per_s is not None
        and end.low_per_s <= FAR * server.capacity_per_s
        and end.high_per_s >= server.capacity_per_s / FAR
        for end in ends
    ]
    assert all(near)
