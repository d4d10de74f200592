"""A choice is won where the ranking finds what was measured to be the fastest, and no fit sees what it predicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.advice import held_out
from benchmarks.advice.choices import Choice, Option, choices_of, found
from benchmarks.advice.held_out import HeldOut, without_odd
from benchmarks.advice.suite import figures
from benchmarks.prediction.cells import Cell
from benchmarks.prediction.fit import constants_to_fit, starts
from benchmarks.prediction.judge import Judge, Judged
from tests.planning import make_plan

METHODS = ("F", "R", "Z2", "Z3")


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    plans = [make_plan(f"method={method}", "model=7b", "hardware=a800") for method in METHODS]
    return [Cell("III", plan, 1.0 + place) for place, plan in enumerate(plans)]


def option(method: str, measured: float, predicted: float, fits: str = "yes") -> Option:
    return Option(method, measured, predicted, fits)


def test_the_best_of_the_first_three_counts() -> None:
    options = [option("a", 90, 400), option("b", 98, 300), option("c", 50, 200), option("d", 100, 100)]
    choice = Choice("x", tuple(options))
    assert [one.method for one in choice.ranked] == ["a", "b", "c", "d"]
    assert choice.reached(3) == pytest.approx(0.98)
    assert choice.reached(1) == pytest.approx(0.9)
    assert (found([choice], 3, 0.03), found([choice], 1, 0.05), found([choice], 3, 0.01)) == (1, 0, 0)


def test_what_does_not_fit_by_the_plan_is_not_ranked_and_still_the_best() -> None:
    choice = Choice("x", (option("a", 100, 400, "no"), option("b", 50, 300)))
    assert choice.best.method == "a"
    assert choice.reached(3) == 0.5
    assert Choice("x", (option("a", 100, 400, "no"),)).reached(3) == 0.0


def test_an_option_has_the_speed_that_its_error_means(cells) -> None:
    one = Option.of(cells[0], float(np.log(2)))
    assert one.measured == pytest.approx(cells[0].plan.amount)
    assert one.predicted == pytest.approx(one.measured / 2)


def test_choices_are_by_table_model_and_machine(cells) -> None:
    larger = [replace(cell, table="IV") for cell in cells[:3]]
    made = choices_of(Judged("x", [*cells, *larger], np.zeros(7)))
    assert [choice.name for choice in made] == ["III 7b a800"]  # three methods are too few
    assert len(made[0].options) == 4


class _Judge:
    def __init__(self, cells: list[Cell]) -> None:
        self.printed, self.odd = cells[:3], [replace(cells[3], odd=True)]
        self.card: list[Cell] = []
        self.constants = constants_to_fit()
        self.logs = starts(self.constants)


@pytest.mark.parametrize(
    ("way", "seen"),
    [
        ("method", [{"R", "Z2"}, {"F", "Z2"}, {"F", "R"}, {"F", "R", "Z2"}]),
        ("best", [{"R", "Z2"}]),
        ("choice", [set()]),
    ],
)
def test_no_fit_sees_what_it_must_not(way: str, seen: list[set[str]], cells, monkeypatch) -> None:
    fits = []

    def fitted(runs, constants, begin):
        fits.append({cell.plan.method for cell in runs.cells})
        return begin

    monkeypatch.setattr(held_out, "fitted", fitted)
    judge: Judge = _Judge(cells)  # type: ignore[assignment]
    judged = getattr(HeldOut(judge), way)()
    assert sorted(fits, key=sorted) == sorted(seen, key=sorted)
    assert len(judged.cells) == 4
    assert len(without_odd(judged).cells) == 3


def test_floors_break_where_rankings_are_bad() -> None:
    good = Choice("x", (option("a", 100, 400), *[option("b", 50, 300)] * 3))
    bad = Choice("x", (option("a", 100, 1), *[option("b", 50, 300)] * 3))
    assert not any(figure.broken for figure in figures("x", [good] * 20 + [bad], (95.2, 80.0)))
    assert all(figure.broken for figure in figures("x", [good] * 3 + [bad] * 18, (95.2, 80.0)))
