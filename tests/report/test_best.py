"""The best figures of a sweep."""

from __future__ import annotations

from llmexp.record.result import Stability
from llmexp.report.best import best_figures, best_words, headlines
from llmexp.report.table import build_report


def rows_of(*folders):
    return build_report(folders).rows


def test_the_highest_rate_and_the_lowest_memory_of_each_model_are_its_best(make_run):
    one = make_run(method="F", metrics={"tokens_per_s": 120.0, "peak_rss_bytes": 9e9, "mfu": 0.4})
    other = make_run(method="R", metrics={"tokens_per_s": 1234.5, "peak_rss_bytes": 7e9})
    rows = rows_of(one, other)
    model = rows[0].plan.config.model.name
    assert best_figures(rows) == {
        f"best/{model}/tokens_per_s": 1234.5,
        f"best/{model}/peak_rss_bytes": 7e9,
        f"best/{model}/mfu": 0.4,
    }
    assert best_words(rows) == ["2 runs: 2 success", f"fastest of {model}: R, 1,230 tokens/s"]
    assert headlines(rows) == ("tokens_per_s", "mfu", "peak_rss_bytes")


def test_what_speaks_against_the_fastest_run_and_how_all_ended_is_said(make_run):
    doubtful = Stability(verdict="unstable", reasons=["contention"])
    rows = rows_of(
        make_run(method="F", metrics={"tokens_per_s": 50.0}, stability=doubtful),
        make_run(method="R", status="oom"),
        make_run(method="Z2", status="oom"),
    )
    model = rows[0].plan.config.model.name
    assert best_words(rows) == ["3 runs: 2 oom, 1 success", f"fastest of {model}: F, 50.0 tokens/s, unstable"]


def test_a_sweep_without_a_measurement_has_no_best_figure(make_run):
    rows = rows_of(make_run(status="failed"))
    assert (best_figures(rows), best_words(rows)) == ({}, ["1 run: 1 failed"])
    assert headlines(rows) == ("tokens_per_s",)
