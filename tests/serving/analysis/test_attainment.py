import random
from itertools import accumulate
from math import inf

import pytest

from llmexp.serving.analysis import attainment as module
from llmexp.serving.analysis.attainment import FEWEST_IN_BURSTS, FEWEST_REQUESTS, attainment, fewest_requests


def used(draw: random.Random, requests: int, kept: float, run: int = 1) -> list[float]:
    """Return requests that keep the objective with a probability, in runs that keep or miss it together."""
    return [value for _ in range(requests // run) for value in [0.2 if draw.random() < kept else 2.0] * run]


def wrong(kept: float, answer: str, run: int, requests: int = 400, tries: int = 300) -> int:
    draw = random.Random(0)
    return sum(attainment([used(draw, requests, kept, run)]).verdict == answer for _ in range(tries))


@pytest.mark.parametrize("run", [1, 4, 10])
def test_a_share_at_the_limit_is_seldom_called_either(run: int) -> None:
    # One in a hundred is what each is meant to be called; 2 in 100 is what is promised, of 300 tries 6.
    assert wrong(0.9, "kept", run) <= 9
    assert wrong(0.9, "missed", run) <= 9


def test_a_clear_share_is_told() -> None:
    assert wrong(0.99, "kept", run=1) >= 290
    assert wrong(0.7, "missed", run=1) >= 290


def test_without_its_count_of_dependence_the_verdict_would_err(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_dependence", lambda used, level: 1.0)
    assert wrong(0.9, "kept", run=10) > 15


def test_requests_near_the_limit_tell_how_much_they_depend_on_each_other() -> None:
    # None missed: but they come near the limit in one long run, as where a queue builds up.
    calm, near = [0.2] * 200, [0.2] * 100 + [0.95] * 40 + [0.2] * 60
    assert attainment([calm]).verdict == "kept"
    assert attainment([near]).verdict == "unknown"


def test_what_was_not_answered_missed() -> None:
    found = attainment([[0.1] * 60 + [inf] * 60])
    assert (found.verdict, found.kept_share) == ("missed", 0.5)
    assert found.reasons == ["50.0% of the requests kept the objective, not 90%"]


def test_requests_that_do_not_tell_leave_it_unknown_however_many_they_are() -> None:
    found = attainment([[None] * 300])
    assert (found.verdict, found.kept_share, found.more_requests_tell) == ("unknown", None, False)
    assert found.reasons == [
        "the output tokens of 300 requests were not counted, so it is unknown whether they kept a limit of TPOT"
    ]
    (reason,) = attainment([[None], [0.1] * 300]).reasons
    assert reason.startswith("the output tokens of 1 of 301 requests were not counted,")
    assert attainment([[0.1] * 60]).more_requests_tell


def test_an_objective_that_would_be_missed_with_all_that_do_not_tell_is_missed() -> None:
    assert attainment([[None] * 60 + [3.0] * 60]).verdict == "missed"


def test_few_requests_tell_nothing_and_say_why() -> None:
    assert attainment([]).verdict == "unknown"
    assert attainment([[0.1] * 60]).reasons == ["100.0% of 60 requests kept the objective: 100 are needed to decide"]
    assert attainment([[0.1] * 60, [0.1] * 60]).reasons == [
        "100.0% of 120 requests kept the objective: 100 in each repeat are needed to decide"
    ]
    assert attainment([[0.1] * 100, [0.1] * 100]).verdict == "kept"
    assert attainment([[0.1] * 120], share=0.99).verdict == "unknown"
    assert attainment([[0.1] * 600], share=0.99).verdict == "kept"


def test_bursts_need_more_requests_than_even_and_poisson_arrivals() -> None:
    draw = random.Random(0)
    even = [float(index) for index in range(100)]
    poisson = list(accumulate(draw.expovariate(1.0) for _ in range(100)))
    bursts = list(accumulate(draw.gammavariate(0.25, 4.0) for _ in range(100)))
    assert fewest_requests([even]) == fewest_requests([poisson, poisson]) == FEWEST_REQUESTS
    assert fewest_requests([bursts]) == FEWEST_IN_BURSTS
    assert fewest_requests([[0.0]]) == FEWEST_REQUESTS
    assert attainment([[0.1] * 100], fewest=fewest_requests([bursts])).verdict == "unknown"
