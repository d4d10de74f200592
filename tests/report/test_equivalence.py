import random

import pytest

from benchmarks.simulated import Protocol, Scatter, Simulated
from llmexp.record.result import Metric, Stability
from llmexp.report.equivalence import equivalence

CONTENDED = Stability(verdict="unstable", reasons=["contention: other processes took 1.00 of 2 cores"])


def speed(mean: float, share: float | None = 0.01, n: int = 3) -> Metric:
    return Metric(mean=mean, std_between_repeats=share and share * mean, n=n)


@pytest.mark.parametrize(
    ("first", "second", "answer", "reason"),
    [
        (speed(100), speed(101), "same", "1.010 of the first run's (98% interval 0.980 to 1.041), within 5%"),
        (speed(100), speed(90), "different", "(98% interval 0.873 to 0.928), beyond 5%"),
        (
            speed(100, 0.03),
            speed(104, 0.03),
            "unknown",
            "which neither lies within 5% nor leaves 1 out: measure.repeats=8 of both may settle it",
        ),
        (speed(100, 0.4), speed(104, 0.4), "unknown", "find what makes repeats differ so much"),
        (speed(100, 0.001), speed(104, 0.001), "same", "within 5%"),
        (
            speed(100, None, 1),
            speed(104, None, 1),
            "unknown",
            "each is one process, so how much processes differ is unknown: set measure.repeats=3",
        ),
        (speed(100, None, 1), speed(80, 0.01), "different", "beyond 5%"),
    ],
)
def test_speeds_are_told_apart_as_far_as_their_repeats_differ(first, second, answer, reason):
    found = equivalence(first, second, (None, None), "tokens_per_s")
    assert found.answer == answer
    assert found.reason.endswith(reason)


def test_a_disturbed_run_may_be_the_same_and_is_never_different():
    assert equivalence(speed(100), speed(101), (CONTENDED, None), "tokens_per_s").reason.endswith(
        f"though the first measurement is unstable ({CONTENDED.reasons[0].words})"
    )
    found = equivalence(speed(100), speed(50), (None, CONTENDED), "tokens_per_s")
    assert found.answer == "unknown"
    assert found.reason.endswith(f"but the second measurement is unstable ({CONTENDED.reasons[0].words})")


def answers(first: Simulated, second: Simulated, pairs: int) -> list[str]:
    draw = random.Random(0)
    runs = [(first.run(draw), second.run(draw)) for _ in range(pairs)]
    return [equivalence(a, b, (of_a, of_b), "tokens_per_s").answer for (a, of_a), (b, of_b) in runs]


@pytest.mark.parametrize("first", [Protocol("one", 1, 5, 20), Protocol("three", 3, 5, 20)])
def test_equal_speeds_are_seldom_called_different_and_a_tenth_never_the_same(first):
    """The cases of an outsider's simulation: one repeat each, and processes that differ by 3 %."""
    scatter, again, pairs = Scatter(0.03, of_processes=0.03), Protocol("three", 3, 5, 20), 200
    assert answers(Simulated(first, scatter), Simulated(again, scatter), pairs).count("different") <= 0.03 * pairs
    assert answers(Simulated(first, scatter), Simulated(again, scatter, speed=0.9), pairs).count("same") <= 0.01 * pairs
    alone = Protocol("one", 1, 5, 20)
    assert set(answers(Simulated(alone, scatter), Simulated(alone, scatter, speed=0.9), 20)) == {"unknown"}


def test_quiet_repeats_tell_equal_speeds_and_a_tenth():
    quiet, protocol = Scatter(0.03, of_processes=0.005), Protocol("three", 3, 5, 40)
    assert answers(Simulated(protocol, quiet), Simulated(protocol, quiet), 100).count("same") > 90
    assert answers(Simulated(protocol, quiet), Simulated(protocol, quiet, speed=0.9), 100).count("different") > 95
