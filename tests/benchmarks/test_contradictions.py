"""Cells that contradict each other are found, and tell how far off every model has to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.prediction.cells import Cell
from benchmarks.prediction.contradictions import contradicting, least_error, least_quantile, rules
from benchmarks.prediction.judge import Judged
from benchmarks.prediction.suite import tail, without_contradictions
from tests.planning import make_plan

WORDS = ("precision=bf16_pure", "data.seq_len=350")


def cell(step_s: float, method: str, model: str = "7b", hardware: str = "a800", batch: int = 1) -> Cell:
    plan = make_plan(f"method={method}", f"model={model}", f"hardware={hardware}", f"batch.micro={batch}", *WORDS)
    return Cell("made up", plan, step_s)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"method": "Z3"}, {"method": "F+Z3"}),
        ({"method": "R+Z3"}, {"method": "Z3"}),
        ({"method": "Z3+O"}, {"method": "Z3"}),
        ({"method": "Z3", "model": "13b"}, {"method": "Z3"}),
        ({"method": "Z3", "batch": 4}, {"method": "Z3"}),
        (
            {"method": "Z3", "hardware": "rtx3090"},
            {"method": "Z3", "hardware": "rtx3090_nvlink"},
        ),
    ],
)
def test_the_first_takes_no_less_than_the_second(one, other) -> None:
    def contradict(step_s: float, other_s: float) -> bool:
        return contradicting([cell(step_s, **one), cell(other_s, **other)]) == {0, 1}

    assert contradict(2.0, 2.4)
    assert not contradict(2.4, 2.0)


def test_a_batch_takes_no_longer_than_its_samples_one_by_one() -> None:
    assert contradicting([cell(1.0, "Z3"), cell(5.0, "Z3", batch=4)])
    assert not contradicting([cell(1.0, "Z3"), cell(4.0, "Z3", batch=4)])


def test_recomputation_costs_no_more_with_f_than_without_it() -> None:
    def four(both: float) -> list[Cell]:
        seconds = {"Z3": 3.0, "F+Z3": 2.0, "R+Z3": 4.0, "F+R+Z3": both}
        return [cell(step_s, method) for method, step_s in seconds.items()]

    assert not contradicting(four(3.0))
    assert contradicting(four(3.9)) == {0, 1, 2, 3}


def test_the_least_error_is_that_of_the_best_compromise() -> None:
    pair = [cell(3.0, "F+Z3"), cell(1.0, "Z3")]
    (rule,) = rules(pair)
    # Both predicted as 1.5 s: 50 % of each.
    assert least_error(rule, pair) == pytest.approx(0.5)


def test_the_quantile_counts_a_cell_of_each_contradiction() -> None:
    wrong = [cell(3.0, "F+Z3"), cell(1.0, "Z3")]
    right = [cell(1.0, method) for method in ("Naive", "R", "Z2")]
    assert least_quantile(wrong, 1.0) == pytest.approx(0.5)
    assert least_quantile([*wrong, *right], 1.0) == pytest.approx(0.5)
    assert least_quantile([*wrong, *right], 0.7) == 0.0
    # One wrong cell is enough for two contradictions.
    chain = [cell(9.0, "F+Z3"), cell(3.0, "Z3"), cell(1.0, "R+Z3")]
    assert least_quantile(chain, 1.0) == pytest.approx(0.5)
    assert least_quantile(chain, 0.5) == 0.0


def test_figures_tell_errors_without_contradictions_and_what_they_cause() -> None:
    cells = [cell(3.0, "F+Z3"), cell(1.0, "Z3"), cell(1.0, "Naive")]
    judged = Judged("one method left out", cells, np.log([0.5, 1.5, 1.2]))
    assert [str(kept) for kept in without_contradictions(judged).cells] == [str(cells[2])]
    fitted, consistent, least = tail(replace(judged, errors=np.log([1.1, 1.1, 1.1])), judged)
    assert fitted.measured.mean == pytest.approx(10.0)
    assert consistent.measured.mean == pytest.approx(20.0)
    assert (least.measured.mean, least.n) == (pytest.approx(0.0), 3)
