from __future__ import annotations

from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

import pytest

from llmexp.errors import ConfigError
from llmexp.serving.plan.arrivals import PROCESSES, Process, RisingRate, burst, due_times, listed

N, PER_S = 20_000, 4.0


def gaps(process: Process, shape: float = 1.0, seed: int = 1) -> list[float]:
    return [after - before for before, after in pairwise(due_times(process, PER_S, N, seed, shape))]


@pytest.mark.parametrize(
    ("process", "shape", "variation"),
    [("poisson", 1.0, 1.0), ("gamma", 1.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5)],
)
def test_gaps_have_the_mean_and_the_variation_of_their_process(
    process: Process, shape: float, variation: float
) -> None:
    found = gaps(process, shape)
    assert fmean(found) == pytest.approx(1 / PER_S)
    assert stdev(found) / fmean(found) == pytest.approx(variation, rel=0.08)
    assert min(found) >= 0


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("requests", [2, 3, 40])
def test_the_rate_that_was_asked_for_is_the_one_that_is_offered(process: Process, requests: int) -> None:
    for seed in range(10):
        times = due_times(process, PER_S, requests, seed, shape=0.25)
        assert (len(times), times[0], times) == (requests, 0.0, sorted(times))
        assert (requests - 1) / times[-1] == pytest.approx(PER_S)


@pytest.mark.parametrize("process", PROCESSES)
def test_one_request_is_due_at_once_and_none_never(process: Process) -> None:
    assert (due_times(process, PER_S, 1, seed=0), due_times(process, PER_S, 0, seed=0)) == ([0.0], [])


def test_poisson_arrivals_in_a_part_of_few_vary_as_chance_has_it() -> None:
    # How many of the 38 in between lie in the first half is binomial: its deviation is the root of 38 / 4.
    halves = [
        sum(time_s < times[-1] / 2 for time_s in times[1:-1])
        for times in (due_times("poisson", PER_S, 40, seed) for seed in range(2000))
    ]
    assert fmean(halves) == pytest.approx(19, abs=0.3)
    assert stdev(halves) == pytest.approx((38 / 4) ** 0.5, rel=0.06)


def test_poisson_arrivals_in_a_second_vary_as_much_as_their_number() -> None:
    times = due_times("poisson", PER_S, N, seed=2)
    seconds = int(times[-1])
    counts = [0] * (seconds + 1)
    for time_s in times:
        counts[int(time_s)] += 1
    assert fmean(counts[:-1]) == pytest.approx(PER_S, rel=0.03)
    assert stdev(counts[:-1]) ** 2 == pytest.approx(PER_S, rel=0.08)


def test_constant_arrivals_drift_nowhere() -> None:
    assert due_times("constant", 10.0, 4, seed=0) == [0.0, 0.1, 0.2, 0.3]
    assert due_times("constant", 3.0, 30_001, seed=0)[-1] == 10_000.0


def test_a_seed_gives_the_same_times_and_another_gives_others() -> None:
    assert gaps("poisson", seed=5) == gaps("poisson", seed=5)
    assert gaps("poisson", seed=5) != gaps("poisson", seed=6)


def test_a_burst_is_due_at_once() -> None:
    assert burst(3) == [0.0, 0.0, 0.0]


def test_recorded_times_begin_with_the_first() -> None:
    assert listed([]) == []
    assert listed([7.5, 8.0, 8.0, 10.0]) == [0.0, 0.5, 0.5, 2.5]
    with pytest.raises(ConfigError, match=r"^time 3 of the list, 1 s, lies before the one above it, 2 s$"):
        listed([0.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"per_s": 0.0}, "rate=0: "),
        ({"per_s": -1.0}, "rate=-1: "),
        ({"per_s": float("inf")}, "rate=inf: "),
        ({"per_s": float("nan")}, "rate=nan: "),
        ({"shape": 0.0}, "shape=0: "),
        ({"shape": 1e-300, "requests": 9}, "shape=1e-300: all 9 requests would be due at once; a larger"),
        ({"process": "uniform"}, "arrivals=uniform: valid are constant, poisson, gamma"),
    ],
)
def test_what_makes_no_arrivals_is_refused(words: dict[str, Any], said: str) -> None:
    asked: dict[str, Any] = {"process": "gamma", "per_s": 1.0, "requests": 1, "seed": 0} | words
    with pytest.raises(ConfigError, match=f"^{said}"):
        due_times(**asked)


@pytest.mark.parametrize(("first", "last"), [(1.0, 9.0), (9.0, 1.0), (4.0, 4.0)])
def test_a_rate_rises_or_falls_evenly_with_time(first: float, last: float) -> None:
    ramp, n = RisingRate(first, last, requests=1000), 1000
    end_s = n / ((first + last) / 2)
    assert ramp.at_s(n) == pytest.approx(end_s)
    for share in (0.1, 0.5, 0.9):
        rate = first + (last - first) * share
        due = (first + rate) / 2 * end_s * share
        assert ramp.at_s(due) == pytest.approx(end_s * share)
        assert ramp.per_s(due) == pytest.approx(rate)


def test_requests_after_a_ramp_come_at_its_last_rate() -> None:
    ramp = RisingRate(1.0, 10.0, requests=100)
    assert ramp.per_s(250) == 10.0
    assert ramp.at_s(101) - ramp.at_s(100) == pytest.approx(0.1)


def test_arrivals_of_a_ramp_are_as_many_in_each_part_as_its_rate_says() -> None:
    ramp = RisingRate(1.0, 9.0, requests=N)
    times = ramp.due_times("poisson", seed=3)
    assert times == sorted(times)
    assert len(times) == N
    half_s = ramp.at_s(N) / 2
    # Rates from 1 to 5 in the first half, and from 5 to 9 in the second; three deviations of a Poisson count.
    assert sum(time_s < half_s for time_s in times) == pytest.approx(N * 0.3, abs=3 * (N * 0.3) ** 0.5)


def test_constant_arrivals_of_a_ramp_come_ever_faster() -> None:
    steps = [after - before for before, after in pairwise(RisingRate(2.0, 8.0, 500).due_times("constant", seed=0))]
    assert len(steps) == 499
    assert all(after < before for before, after in pairwise(steps))
    assert steps[0] == pytest.approx(1 / 2, rel=0.05)
    assert steps[-1] == pytest.approx(1 / 8, rel=0.05)


@pytest.mark.parametrize(("first", "last"), [(0.0, 1.0), (1.0, -1.0), (1.0, float("inf"))])
def test_a_ramp_has_rates_above_0(first: float, last: float) -> None:
    with pytest.raises(ConfigError, match=r"^rate=.*a rate that is a number above 0$"):
        RisingRate(first, last, requests=10)
