"""The fit to published servers: it finds constants that made the numbers, and judges sources by the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.prediction.served import measured
from benchmarks.prediction.served_fit import CONSTANTS, Left, constants_of, errors, fit, weights
from benchmarks.prediction.serving import KINDS, figures, holding, intervals
from llmexp.serving.predict.rates import constants

ROWS = [row for row in measured() if row.source in ("qwen", "inferencex", "sglang", "nim") and not row.is_old]


def test_the_fit_finds_the_constants_that_made_the_numbers() -> None:
    truth = constants()["fitted"] | {"memory_share": 0.72, "python_request_s": 5e-5}
    made = [replace(row, value=row.predicted(truth)) for row in ROWS]
    found = constants_of(fit(made))
    assert found["memory_share"] == pytest.approx(0.72, rel=0.05)
    assert np.median(np.abs(errors(made, found))) < 0.02


def test_the_packages_constants_are_those_that_are_fitted() -> None:
    assert set(constants()["fitted"]) == {one.rate for one in CONSTANTS}


def test_the_packages_constants_predict_half_of_the_numbers_within_a_fifth() -> None:
    rows = [row for row in measured() if not row.is_old and not row.is_impossible]
    off = np.abs(np.expm1(errors(rows, constants()["fitted"])))
    assert len({row.source for row in rows}) >= 35
    assert np.median(off) < 0.2
    assert np.quantile(off, 0.8) < 0.4


def test_large_sources_do_not_drown_small_ones() -> None:
    rows = measured()
    counts = weights(rows)
    of_large = counts[np.array([row.source == "tensorrt-llm" for row in rows])]
    assert of_large.sum() == pytest.approx(8)
    assert counts[np.array([row.source == "mlc" for row in rows])].tolist() == [1.0] * 4


def test_intervals_hold_nine_of_ten_of_numbers_that_err_alike() -> None:
    rows = [row for row in measured() if row.kind == "throughput" and not row.is_old][:200]
    left = Left(rows, np.random.default_rng(0).normal(0, 0.2, len(rows)))
    held, tried = holding(left, "throughput")
    assert 0.84 < held / tried < 0.96


def test_engines_that_are_predicted_are_judged_apart_on_some_cards() -> None:
    left = Left(ROWS, np.arange(len(ROWS), dtype=float))
    part = left.by_predicted_engines(("h100",))
    assert {row.row["hardware"] for row in part.rows} == {"h100"}
    assert {row.row["engine"] for row in part.rows} <= {"vllm", "sglang", "lightllm", "tgi"}
    assert 0 < len(part.rows) < len(ROWS)
    assert [ROWS[int(error)] for error in part.errors] == list(part.rows)


def test_an_interval_is_as_wide_as_the_errors() -> None:
    rows = [row for row in measured() if not row.is_old]
    noise = np.random.default_rng(1).normal(0, 1, len(rows))
    narrow, wide = (intervals(Left(rows, spread * noise)) for spread in (0.05, 0.3))
    for kind in KINDS:
        assert wide[kind][0] < narrow[kind][0] < 1 < narrow[kind][1] < wide[kind][1]


def test_figures_have_limits_that_large_errors_break() -> None:
    rows = [row for row in measured() if not row.is_old]
    noise = np.random.default_rng(2).normal(0, 1, len(rows))
    small, large = (list(figures(Left(rows, spread * noise))) for spread in (0.1, 0.5))
    assert not any(one.broken for one in small)
    assert {one.name for one in large if one.broken} == {
        "median error of throughput, a source left out",
        "median error of TPOT, a source left out",
        "median error of throughput, predicted engines on common cards",
    }
    sources = {row.source for row in rows}
    assert {name for name in sources if any(f", {name} left out" in one.name for one in small)} == sources
