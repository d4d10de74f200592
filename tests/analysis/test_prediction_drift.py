"""When predictions have begun to err otherwise: what is told, and what is not."""

from __future__ import annotations

from math import log

import pytest

from llmexp.analysis.prediction_drift import LEAST_SESSIONS, drift

SLOWER = [[log(0.8)]] * 4


def steady(count: int) -> list[list[float]]:
    return [[0.01 * (place % 3)] for place in range(count)]


def test_a_slowdown_of_the_newest_sessions_is_told() -> None:
    found = drift([*steady(8), *SLOWER])
    assert found.is_drift
    assert found.ratio == pytest.approx(0.8, rel=0.02)
    assert "DRIFT: measured over predicted x 0.79" in found.words


def test_a_steady_error_is_no_drift_however_large() -> None:
    found = drift([[log(0.5) + value for value in session] for session in steady(12)])
    assert found.is_known
    assert not found.is_drift


def test_a_slowdown_too_small_to_matter_is_not_told() -> None:
    assert not drift([*[[0.0001 * place] for place in range(8)], *[[-0.01]] * 4]).is_drift


def test_one_odd_session_is_no_drift() -> None:
    assert not drift([*steady(11), [log(0.1)]]).is_drift


def test_many_odd_runs_of_one_sweep_count_once() -> None:
    assert not drift([*steady(11), [log(0.5)] * 50]).is_drift


def test_few_sessions_tell_nothing() -> None:
    found = drift(steady(LEAST_SESSIONS - 1))
    assert not found.is_known
    assert found.words == "drift unknown: 7 sweeps by day, and it takes 8"


def test_the_chance_is_exact() -> None:
    # The 4 smallest of 8 come last in 1 order of 70, the 4 largest in another.
    found = drift([[1.0 + 0.01 * place] for place in range(4)] + [[0.01 * place] for place in range(4)])
    assert found.chance == pytest.approx(2 / 70)


def test_sessions_of_long_ago_are_left_out() -> None:
    found = drift([*[[5.0]] * 100, *steady(40)])
    assert found.newest + found.older == 40
    assert not found.is_drift
