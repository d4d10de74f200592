"""Throughput against interactivity: a point a load, a line a configuration, from the metrics of results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from served_requests import answer, served_row, serving_plan

from llmexp.record.result import Stability
from llmexp.report.page.chart import Chart
from llmexp.report.page.document import page
from llmexp.report.table import Report
from llmexp.serving.report.interactivity import TOKENS
from llmexp.serving.report.loads import loads_of
from llmexp.serving.report.section import ServingSection


def section_of(tmp_path: Path, *engines: str) -> ServingSection:
    """Servers of two loads of two requests, each answered in 2 s and in 4 s: four tokens, the first at half time."""
    rows = []
    for engine in engines:
        plan = serving_plan("serve.rate=2,max", "serve.requests=2", f"engine={engine}")
        answers = [answer(0), answer(1, 1.0), *(answer(index, point=1, takes_s=4.0) for index in range(2))]
        rows.append(served_row(tmp_path / engine, plan, *answers))
    return ServingSection(tuple(rows))


def charts(section: ServingSection) -> dict[str, Chart]:
    return {chart.title: chart for chart in section.charts}


def test_a_point_a_load_and_a_line_a_server(tmp_path: Path) -> None:
    section = section_of(tmp_path, "transformers", "llama_cpp")
    chart = charts(section)["Throughput against interactivity"]
    assert (chart.x_label, chart.y_label) == (
        "output tokens/s of one user (1 / median TPOT)",
        "output tokens/s per device",
    )
    assert [trace.name for trace in chart.traces] == ["transformers", "llama_cpp"]
    trace = chart.traces[0]
    assert list(trace.labels) == ["max", "2/s"]  # from the slowest user on
    assert list(trace.x) == pytest.approx([3 / 2, 3 / 1], rel=1e-5)
    by_name = {load.name: load for load in loads_of(section.rows)}
    assert list(trace.y) == [by_name[name].mean(TOKENS) for name in trace.labels]


def test_the_spread_of_repeats_is_an_interval_and_a_doubt_a_sign(tmp_path: Path) -> None:
    section = section_of(tmp_path, "transformers")
    (row,) = section.rows
    doubtful = row.result.model_copy(update={"stability": Stability(verdict="unstable", reasons=["noise: wide"])})
    for point in doubtful.points:
        metric = point.metrics[TOKENS]
        point.metrics[TOKENS] = metric.model_copy(update={"std_between_repeats": 0.1, "n": 3})
    section = ServingSection((replace(row, result=doubtful),))
    trace = charts(section)["Throughput against interactivity"].traces[0]
    assert trace.name == "transformers !"
    low, high = trace.intervals[0]
    assert (low + high) / 2 == pytest.approx(trace.y[0])
    assert high - low == pytest.approx(2 * 4.303 * 0.1 / 3**0.5, rel=1e-3)


def test_one_load_makes_no_curve(tmp_path: Path) -> None:
    row = served_row(tmp_path / "a", serving_plan("serve.rate=max", "serve.requests=1"), answer(0))
    assert "Throughput against interactivity" not in charts(ServingSection((row,)))


def test_distributions_are_charts_of_the_page(tmp_path: Path) -> None:
    section = section_of(tmp_path, "transformers")
    found = charts(section)["Distribution of the time to first token"]
    assert [list(trace.x) for trace in found.traces] == [[1.0, 1.0], [2.0, 2.0]]
    assert list(found.traces[0].y) == [50.0, 100.0]
    assert set(section.drawn_as_charts) >= {"latencies", "interactivity"}


def test_on_the_page_an_answer_stands_once_and_one_table_stands_first(tmp_path: Path) -> None:
    text = page(Report((section_of(tmp_path, "transformers", "llama_cpp"),)))
    first = text[: text.index(">Further pictures<")]
    assert first.count("data-table") == 1
    assert text.count("aturation of transformers: unknown") == 1
    assert "?, transformers at 2/s" in text[text.index("Load points".lower()) :]
    assert "?, transformers at 2/s" not in first
