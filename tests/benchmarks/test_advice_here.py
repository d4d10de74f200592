"""Trials of the choice of deciding runs, on made-up measurements."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.advice_here import Truth, chosen_of, trial
from llmexp.advice.option import Option
from llmexp.sweep.cost import Cost
from tests.planning import make_plan

# Predicted and measured tokens/s.
RATES = ((1000.0, 900.0), (990.0, 700.0), (980.0, 1100.0), (970.0, 1200.0), (100.0, 90.0))


def truth(predicted: float, measured: float) -> Truth:
    plan = make_plan("model=13b", "hardware=a800", "method=F+Z3", f"seed={int(predicted)}")
    known = plan.predicted.model_copy(update={"rate": predicted, "low": 0.8 * predicted, "high": 1.25 * predicted})
    step_s = plan.amount / measured
    steps_s = [[0.99 * step_s, 1.01 * step_s], [step_s, step_s]]
    return Truth(Option(Cost(plan.model_copy(update={"predicted": known}), None, "predicted")), steps_s, 10.0)


def test_those_that_would_be_measured_are_the_most_promising() -> None:
    measured = [truth(*rates) for rates in RATES]
    ids = [one.option.plan.id for one in measured]
    assert chosen_of(measured, 3) == set(ids[:3])
    assert chosen_of(measured[3:], 3) == {ids[3]}


def test_a_trial_tells_whether_the_best_is_among_them_and_how_near_they_come() -> None:
    measured = [truth(*rates) for rates in RATES]
    three, four = (trial(measured, np.random.default_rng(0), chosen_of(measured, count)) for count in (3, 4))
    assert (three.held, four.held) == (False, True)
    assert three.share == pytest.approx(1100 / 1200, rel=0.03)
    assert four.share == 1
    assert (three.cost, four.cost) == (0.6, 0.8)


def test_a_draw_scatters_as_the_steps_do() -> None:
    one = truth(1000, 800)
    draws = {round(one.drawn(np.random.default_rng(seed)), 3) for seed in range(20)}
    assert one.rate == pytest.approx(800)
    assert len(draws) > 2
    assert max(abs(draw / 800 - 1) for draw in draws) < 0.011
