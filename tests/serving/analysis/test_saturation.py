import random
from collections import Counter
from itertools import pairwise
from math import inf

import pytest

from benchmarks.queues import ARRIVALS, HEAVY_TAILED, SERVERS, Batching, Server, constant, load
from llmexp.serving.analysis import saturation as module
from llmexp.serving.analysis.backlog import Load
from llmexp.serving.analysis.saturation import saturation

NAMES = [server.name for server in SERVERS]


def verdicts(server: Server, arrivals: str, utilization: float, requests: int, tries: int = 40) -> Counter[str]:
    draw = random.Random(0)
    return Counter(saturation([load(server, arrivals, utilization, requests, draw)]).verdict for _ in range(tries))


def steady(latency_s: float, requests: int = 100, growth: float = 0.0) -> Load:
    """One request a second, which takes longer by `growth` seconds for each second of load."""
    return Load([float(due) for due in range(requests)], [latency_s + growth * due for due in range(requests)])


@pytest.mark.parametrize("server", SERVERS, ids=NAMES)
@pytest.mark.parametrize("arrivals", ARRIVALS)
@pytest.mark.parametrize("requests", [30, 100, 300])
def test_a_wrong_verdict_is_rare(server: Server, arrivals: str, requests: int) -> None:
    # The rate that is promised is 2 in 100; of 40 tries 4 or more are wrong at that rate less than once in 100.
    assert verdicts(server, arrivals, 0.8, requests)["overloaded"] < 4
    assert verdicts(server, arrivals, 1.25, requests)["kept_up"] < 4


@pytest.mark.parametrize("server", HEAVY_TAILED, ids=[server.name for server in HEAVY_TAILED])
@pytest.mark.parametrize("arrivals", ["constant", "Poisson"])
def test_a_load_that_may_not_have_shown_its_longest_requests_is_seldom_called_kept_up(
    server: Server, arrivals: str
) -> None:
    # Of 150 tries 8 or more are wrong at a rate of 2 in 100 less than once in 100.
    assert verdicts(server, arrivals, 1.25, 300, tries=150)["kept_up"] < 8


def test_a_backlog_that_still_fills_is_no_overload() -> None:
    """With many slots and answers of any length it fills for long, in each of several repeats alike."""
    draw, server = random.Random(0), SERVERS[-1]
    points = ([load(server, "constant", 0.8, 100, draw) for _ in range(3)] for _ in range(40))
    # A fifth was called overloaded; 4 of 40 are so at a rate of 2 in 100 less than once in 100.
    assert sum(saturation(point).verdict == "overloaded" for point in points) < 4


def test_without_looking_for_long_answers_the_verdict_would_err(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", inf)
    monkeypatch.setattr(module, "UNEVEN", 0.0)
    monkeypatch.setattr(module, "FEW", 0)
    assert verdicts(HEAVY_TAILED[-1], "constant", 1.25, 300, tries=60)["kept_up"] >= 4


def test_an_answer_of_a_third_of_the_load_leaves_it_unknown() -> None:
    calm = steady(0.25, 100)
    found = saturation([Load(calm.due_s, [40.0 if place == 50 else 0.25 for place in range(100)])])
    assert found.verdict == "unknown"
    assert found.reasons == [
        "the longest answer took 40.0 s, and the requests came within 99.0 s, "
        "too short a time to see how often this happens; about 140 requests would settle it at this rate"
    ]


@pytest.mark.parametrize("server", SERVERS, ids=NAMES)
def test_a_thousand_requests_tell(server: Server) -> None:
    assert verdicts(server, "Poisson", 0.8, 1000, tries=20)["kept_up"] >= 18
    assert verdicts(server, "Poisson", 1.5, 1000, tries=20)["overloaded"] >= 18


def test_a_verdict_that_is_too_hasty_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONFIDENCE", 0.2)
    monkeypatch.setattr(module, "FEW", 0)
    assert verdicts(SERVERS[0], "Poisson", 1.25, 100, tries=120)["kept_up"] >= 5
    assert verdicts(SERVERS[0], "gamma", 0.95, 100)["overloaded"] >= 4


def test_in_overload_the_estimate_is_the_share_that_the_server_cannot_serve() -> None:
    # Five requests in four seconds come, four are served: waiting grows by a quarter of a second a second.
    found = saturation([steady(1.0, 2000, growth=0.25)])
    assert found.verdict == "overloaded"
    assert found.served_share == pytest.approx(0.8, abs=0.01)
    assert found.reasons == ["about 20% of the requests stayed unserved"]


def test_constant_latency_is_kept_up_with_however_many_are_answered_at_once() -> None:
    alone, together = saturation([steady(0.25)]), saturation([steady(10.0, 200)])
    assert (alone.verdict, together.verdict) == ("kept_up", "kept_up")
    # Alone it was at work a quarter of the time: it could have served four times as many.
    assert alone.unserved is not None
    assert alone.unserved.value == pytest.approx(-3, abs=0.1)
    assert alone.served_share == 1.0
    assert together.unserved is not None
    assert together.unserved.value == pytest.approx(0, abs=0.01)


def test_a_load_that_is_shorter_than_an_answer_says_how_many_requests_it_takes() -> None:
    found = saturation([steady(50.0, 100)])
    assert found.verdict == "unknown"
    assert found.reasons == [
        "too few requests to judge: they came within 99.0 s, and the first ones took 50.0 s; at least 310 are needed "
        "at this rate"
    ]
    assert saturation([steady(50.0, 310)]).verdict == "kept_up"


def test_far_too_much_load_needs_no_settled_backlog() -> None:
    # Sixty requests within half a second, of which the server serves one a second.
    due_s = [0.01 * place for place in range(60)]
    found = saturation([Load(due_s, [1.0 + place - due for place, due in enumerate(due_s)])])
    assert (found.verdict, found.served_share) == ("overloaded", None)
    assert "though all had come within 0.590 s" in found.reasons[0]


def test_what_was_not_answered_was_not_served() -> None:
    whole = steady(0.25, 500)
    refused = Load(whole.due_s, [None if place % 5 == 4 else 0.25 for place in range(500)])
    # A server that is idle three quarters of the time and refuses a fifth has room, and still does not serve them.
    found = saturation([refused])
    assert found.verdict == "overloaded"
    assert found.reasons == ["100 of 500 requests had no whole answer"]
    assert found.served_share == pytest.approx(0.8)
    # One that fails by chance decides nothing, nor does it stay in the backlog.
    assert saturation([Load(whole.due_s, [None, *whole.latency_s[1:]])]).verdict == "kept_up"
    assert saturation([Load([0.0, 1.0], [None, None])]).verdict == "unknown"
    assert saturation([]).verdict == "unknown"


def test_repeats_tell_together_what_one_does_not() -> None:
    draw = random.Random(4)
    loads = [load(SERVERS[2], "Poisson", 0.7, 150, draw) for _ in range(5)]
    alone, together = saturation(loads[:1]), saturation(loads)
    assert (alone.verdict, together.verdict) == ("unknown", "kept_up")
    assert alone.unserved is not None
    assert together.unserved is not None
    assert together.unserved.error < alone.unserved.error
    assert "requests would settle it" in alone.reasons[0]


def test_a_full_batch_takes_as_long_as_its_capacity_says() -> None:
    # The simulation itself: 16 slots, each step 1 + 16 x 0.1 times as long, 50 steps a request.
    server = Batching("batch", constant, 16, 0.1)
    due_s = [0.0] * 160
    ends_s = sorted(server.latencies_s(due_s, random.Random(0)))
    assert ends_s[-1] == pytest.approx(160 / server.capacity_per_s)
    assert ends_s[15] == pytest.approx(2.6)
    assert all(before <= after for before, after in pairwise(ends_s))
