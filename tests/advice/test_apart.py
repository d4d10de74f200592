"""Which options predictions tell apart, and which are measured to decide."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import pytest

from llmexp.advice.apart import SHARE
from llmexp.advice.goal import Goal
from llmexp.advice.option import Option
from llmexp.advice.ranking import ranked
from llmexp.sweep.cost import Cost, Speed
from tests.planning import make_plan

A800 = ("model=13b", "hardware=a800")
SPEED = Goal("tokens_per_s")


def option(rate: float, width: float = 0.4, measured: bool = False, fits: str = "yes", number: int = 0) -> Option:
    """An option with this rate, whose interval ends at exp(-width / 2) and exp(width / 2) of it."""
    batch = {"yes": 1, "uncertain": 16}[fits]
    plan = make_plan(*A800, "method=F+Z3", f"batch.micro={batch}", f"seed={number or int(rate)}")
    ends = {"low": rate * exp(-width / 2), "high": rate * exp(width / 2)}
    predicted = plan.predicted.model_copy(update={"rate": rate, **ends})
    speed = Speed(rate / plan.devices, "", is_own=True) if measured else None
    return Option(Cost(plan.model_copy(update={"predicted": predicted}), None, "predicted", speed))


@pytest.mark.parametrize("width", [0.2, 0.4, 1.2])
def test_predictions_are_told_apart_beyond_a_share_of_their_interval(width) -> None:
    best = option(1000, width)
    near, far = (option(1000 * exp(-SHARE * width * by), width) for by in (0.9, 1.1))
    assert ranked([best, near, far], SPEED).undecided == [best, near]


def test_intervals_of_two_widths_count_alike() -> None:
    best, other = option(1000, 0.2), option(800, 0.6)
    assert SHARE * 0.2 < log(1000 / 800) < SHARE * 0.4
    assert ranked([best, other], SPEED).undecided == [best, other]


def test_a_measured_speed_is_compared_with_the_interval_of_the_prediction() -> None:
    best = option(1000, measured=True)
    within, outside = option(1000 * exp(-0.19)), option(1000 * exp(-0.21))
    assert ranked([best, within, outside], SPEED).undecided == [best, within]
    predicted = option(1000)
    slow, slower = option(1000 * exp(-0.19), measured=True), option(1000 * exp(-0.21), measured=True)
    assert ranked([predicted, slow, slower], SPEED).undecided == [predicted, slow]


def test_measured_options_are_told_apart_by_their_order() -> None:
    best, other = option(1000, measured=True), option(990, measured=True)
    assert ranked([best, other], SPEED).undecided == [best]


def test_what_may_fit_and_would_be_better_decides_too_after_what_fits_for_sure() -> None:
    sure, near, may = option(1000), option(950), option(1300, fits="uncertain")
    ranking = ranked([sure, near, may], SPEED)
    assert ranking.undecided == [sure, may, near]
    assert ranking.deciding(2) == [sure, may]


def test_what_is_measured_is_not_measured_again() -> None:
    best, near, nearer = option(1000, measured=True), option(900), option(950)
    assert ranked([best, near, nearer], SPEED).deciding(3) == [nearer, near]


def test_one_that_leads_clearly_needs_no_run() -> None:
    assert ranked([option(1000), option(100)], SPEED).deciding(3) == []


def test_of_memory_nothing_is_measured() -> None:
    assert ranked([option(1000), option(990)], Goal("fits")).deciding(3) == []


def test_what_ran_well_fits_and_what_ended_badly_does_not() -> None:
    may = option(1300, fits="uncertain")
    ran = Option(replace(may.cost, speed=Speed(1.0, "", is_own=True)))
    assert (may.verdict, ran.verdict) == ("uncertain", "yes")
    out_of_memory = Option(replace(may.cost, source="nothing"))
    assert (out_of_memory.verdict, Option(may.cost, failed=True).verdict) == ("no", "no")
    sure = option(1000)
    assert ranked([sure, out_of_memory], SPEED).undecided == [sure]
