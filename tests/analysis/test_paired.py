from __future__ import annotations

from dataclasses import replace
from math import exp, log

import pytest

from llmexp.analysis.contention import Machine, disturbances
from llmexp.analysis.inference import t_factor
from llmexp.analysis.paired import ALLOWED_POWER, RepeatInRound, is_contended, paired
from llmexp.record.result import Doubt, DoubtKind, Stability

CORES = 4


def run(rates: list[float], place: int, taken: list[float] | None = None, driver: int = 0) -> list[RepeatInRound]:
    """The repeats of a run that has this place in every round of ten seconds."""
    cores = taken or [1.0] * len(rates)
    return [
        RepeatInRound(
            rate,
            CORES,
            cores[number],
            f"2026-01-01T00:00:{10 * number + place:02}+00:00",
            f"2026-01-01T00:00:{10 * number + place + 1:02}+00:00",
            ("here", driver),
        )
        for number, rate in enumerate(rates)
    ]


def test_what_slows_both_runs_of_a_round_alike_cancels():
    found = paired(run([100, 50, 25, 80], 0), run([200, 100, 50, 160], 2))
    assert found is not None
    assert (found.ratio, found.error, found.freedom) == (pytest.approx(2), pytest.approx(0, abs=1e-12), 3)


def test_the_interval_is_students_over_the_logarithms_of_the_ratios():
    ratios = [0.1, 0.3, 0.2]
    found = paired(run([1, 1, 1], 0), run([exp(ratio) for ratio in ratios], 2))
    assert found is not None
    assert found.value == pytest.approx(0.2)
    assert found.half_width(0.98) == pytest.approx(t_factor(2, 0.98) * 0.1 / 3**0.5)


def test_each_repeat_counts_by_the_share_of_the_host_that_was_left_to_it():
    first, second = [1.0, 1.2, 0.9, 1.1], [1.1, 0.8, 1.3, 1.0]
    rates = [[10 * (CORES - cores) for cores in taken] for taken in (first, second)]
    found = paired(run(rates[0], 0, first), run([2 * rate for rate in rates[1]], 2, second))
    assert found is not None
    assert (found.ratio, found.error) == (pytest.approx(2), pytest.approx(0, abs=1e-12))


def test_cores_that_others_took_from_one_run_alone_make_the_interval_wider():
    found = paired(run([1, 1, 1], 0, [1.0] * 3), run([0.8, 0.8, 0.8], 2, [1.2] * 3))
    assert found is not None
    assert found.value == pytest.approx(log(0.8 * 3 / 2.8))
    assert found.half_width() == pytest.approx(ALLOWED_POWER * log(3 / 2.8))


def test_runs_of_which_others_took_more_from_one_are_not_paired():
    rates = [1.0, 1.0, 1.0, 1.0]
    assert paired(run(rates, 0), run(rates, 2, [1.0, 1.0, 1.0, 1.9])) is not None
    assert paired(run(rates, 0), run(rates, 2, [1.0, 1.0, 1.0, 2.1])) is None


def test_repeats_that_took_no_turns_are_not_paired():
    first = run([1, 1, 1], 0)
    assert paired(first, run([2, 2, 2], 2)) is not None
    later = [replace(one, began_at=f"2027{one.began_at[4:]}", ended_at=f"2027{one.ended_at[4:]}") for one in first]
    assert paired(first, later) is None
    assert paired(first, run([2, 2, 2], 0)) is None  # at the same time
    assert paired(first, run([2, 2, 2], 2, driver=1)) is None
    assert paired(first, []) is None
    assert paired(first[:2], run([2, 2], 2)) is None


def test_nothing_but_a_shared_host_may_speak_against_a_run():
    of_host = disturbances(Machine([({"cpu_other_cores": 1.0}, 5.0)], cores=2, wanted_cores=2))

    def contended(*reasons: str | Doubt, besides: tuple[DoubtKind, ...] = ()) -> bool:
        return is_contended(Stability(verdict="unstable", reasons=list(reasons)), besides)

    assert contended(*of_host)
    assert is_contended(None)
    assert is_contended(Stability(verdict="unknown", reasons=["noise: …"]))
    for other in ("contention: 2 other processes on GPU 0", "GPU 0 throttled (heat) …", "compilation: …", "drift: …"):
        assert not contended(*of_host, other)
    assert contended(*of_host, "drift: …", besides=(DoubtKind.DRIFT,))
