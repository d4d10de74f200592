"""The judgement of pairs of predictions, on made-up runs."""

from __future__ import annotations

from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.prediction.judge import Judged
from benchmarks.prediction.pairs import pair_figures, pairs_of
from llmexp.advice.apart import SHARE
from llmexp.training.predict.interval import fitted_group, interval_of

LOW, HIGH, _ = interval_of([fitted_group("pretrain")])
LIMIT = SHARE * log(HIGH / LOW)


def cell(method: str, step_s: float, hardware: str = "a800", model: str = "7b") -> SimpleNamespace:
    plan = SimpleNamespace(amount=1.0, config=SimpleNamespace(model=SimpleNamespace(name=model)))
    return SimpleNamespace(plan=plan, hardware=hardware, task="pretrain", method=method, step_s=step_s)


def test_a_pair_has_the_predicted_ratio_and_the_measured_one_in_its_direction() -> None:
    # Predicted are 2 s and 1 s, measured 2 s and 3 s.
    (pair,) = pairs_of([cell("F", 2.0), cell("R", 3.0)], [0.0, log(1 / 3)])
    assert pair.predicted == pytest.approx(log(2))
    assert pair.measured == pytest.approx(log(2 / 3))
    assert pair.limit == pytest.approx(LIMIT)
    assert pair.is_told
    assert not pair.is_within


def test_only_other_methods_on_the_same_machine_make_pairs() -> None:
    cells = [cell("F", 1.0), cell("F", 2.0), cell("R", 1.0, hardware="rtx4090"), cell("R", 1.0, model="13b")]
    assert list(pairs_of(cells, [0.0] * 4)) == []


def test_the_shares_of_right_orders() -> None:
    # One run errs by more than the limit: its pairs with the others are wrong, theirs are right.
    cells = [cell("F", 1.0), cell("R", exp(2 * LIMIT)), cell("Z3", exp(-3 * LIMIT))]
    judged = Judged("", cells, np.array([0.0, 0.0, 7 * LIMIT]))
    judged = Judged(
        "", [*cells, cell("F", 1.0, "rtx4090"), cell("R", 9.0, "rtx4090")], np.append(judged.errors, [0, 0])
    )
    found = {figure.name: figure for figure in pair_figures(judged)}
    right = found["pairs told apart that were measured in that order, A800"]
    assert (right.measured.mean, right.n) == (pytest.approx(100 / 3), 3)
    assert found["pairs whose ratio errs within the limit, other cards"].measured.mean == 100
