"""How a call is sampled, by a clock that the calls themselves move."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import pytest

from llmexp.measure.calls import FEWEST_SAMPLES, Call, CallProtocol, CallRecord, Timed, time_calls


class MadeUpTime:
    """A host whose time passes only in calls; marks and synchronization read it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now_s, self.seconds, self.called = 0.0, seconds, Counter[int]()
        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)

    def call(self, number: int) -> None:
        self.called[number] += 1
        self.now_s += self.seconds

    def mark(self) -> MadeUpMark:
        return MadeUpMark(self.now_s)

    def synchronize(self) -> None:
        pass


class MadeUpMark:
    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def passed(self) -> bool:
        return True

    def seconds_since(self, earlier: MadeUpMark) -> float:
        return self.at_s - earlier.at_s


def timed(host: MadeUpTime, sets: int = 1, slower: float = 1.0) -> Timed:
    protocol = CallProtocol(samples=100, warmup_calls=5, min_sample_s=1e-4, limit_s=2.0, warmup_limit_s=1.0)
    calls = [lambda number=number: host.call(number) for number in range(sets)]
    return time_calls(calls, host, protocol, lambda value: slower * value)


def test_a_sample_is_one_call_where_that_takes_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    found = timed(MadeUpTime(monkeypatch, 0.001))
    assert (len(found.times_s), found.calls) == (100, 1)
    assert found.times_s == pytest.approx([0.001] * 100)


def test_a_short_call_is_repeated_within_a_sample_which_has_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    found = timed(MadeUpTime(monkeypatch, 1e-6))
    assert len(found.times_s) == 100
    assert found.calls == pytest.approx(100, abs=1)
    assert found.times_s == pytest.approx([1e-6] * 100)


@pytest.mark.parametrize(("seconds", "samples"), [(0.1, 20), (1.0, FEWEST_SAMPLES), (60.0, FEWEST_SAMPLES)])
def test_slow_calls_get_fewer_samples_but_not_too_few(
    monkeypatch: pytest.MonkeyPatch, seconds: float, samples: int
) -> None:
    host = MadeUpTime(monkeypatch, seconds)
    assert len(timed(host).times_s) == samples
    # One call says how slow it is, and the warm-up takes at most half of the limit.
    assert host.called.total() - samples <= 1 + max(1, 1.0 / seconds)


def test_the_slowest_rank_decides_how_many_samples_all_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(timed(MadeUpTime(monkeypatch, 0.001), slower=40.0).times_s) == 50


def test_calls_that_become_slow_end_at_the_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    host = MadeUpTime(monkeypatch, 1e-6)
    protocol = CallProtocol(samples=100, warmup_calls=5, min_sample_s=1e-4, limit_s=2.0, warmup_limit_s=1.0)

    def call() -> None:
        host.call(0)
        host.seconds = 0.01 if host.called[0] > 20 else 1e-6

    assert len(time_calls([call], host, protocol, lambda value: value).times_s) == FEWEST_SAMPLES


def test_calls_take_their_inputs_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    host = MadeUpTime(monkeypatch, 0.001)
    timed(host, sets=3)
    assert set(host.called) == {0, 1, 2}
    assert max(host.called.values()) - min(host.called.values()) <= 1


def recording(host: MadeUpTime, launches_s: float, made: list[int]) -> CallRecord:
    """Return what makes one call of several: the device does their work without the time of their launches."""

    def record(calls: Sequence[Call]) -> Call:
        made.append(len(calls))
        before = Counter(host.called)
        seconds, host.seconds = host.seconds, host.seconds - launches_s
        for call in calls:
            call()
        host.seconds = seconds
        numbers = list((host.called - before).elements())

        def replay() -> None:
            for number in numbers:
                host.called[number] += 1
                host.now_s += seconds - launches_s

        return replay

    return record


def test_short_calls_are_timed_without_their_launches_where_these_can_be_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, made = MadeUpTime(monkeypatch, 8e-6), list[int]()
    protocol = CallProtocol(samples=100, warmup_calls=5, min_sample_s=1e-4, limit_s=2.0, warmup_limit_s=1.0)
    calls = [lambda number=number: host.call(number) for number in range(40)]
    found = time_calls(calls, host, protocol, lambda value: value, recording(host, 6e-6, made))
    assert found.recorded
    assert found.times_s == pytest.approx([2e-6] * 100)
    # 13 calls a sample, and so four recordings until every input was used.
    assert (found.calls, made) == (13, [13] * 4)
    assert set(host.called) == set(range(40))


def test_calls_that_cannot_be_recorded_are_launched_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    host = MadeUpTime(monkeypatch, 8e-6)
    protocol = CallProtocol(samples=100, warmup_calls=5, min_sample_s=1e-4, limit_s=2.0, warmup_limit_s=1.0)
    found = time_calls([lambda: host.call(0)], host, protocol, lambda value: value, lambda calls: None)
    assert not found.recorded
    assert found.times_s == pytest.approx([8e-6] * 100)


def test_a_call_that_fills_a_sample_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    host, made = MadeUpTime(monkeypatch, 1e-3), list[int]()
    protocol = CallProtocol(samples=100, warmup_calls=5, min_sample_s=1e-4, limit_s=2.0, warmup_limit_s=1.0)
    found = time_calls([lambda: host.call(0)], host, protocol, lambda value: value, recording(host, 0.0, made))
    assert (found.recorded, made) == (False, [])
