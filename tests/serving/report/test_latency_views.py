"""Figures 7 to 10 of the paper: the latencies of runs under its load, beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_requests import answer, served_row, serving_plan

from llmexp.paper.reference import PAPER
from llmexp.report.references.view import View
from llmexp.report.row import Row
from llmexp.serving.report.section import ServingSection

# Engine, model and machine, and the seconds that the first and the second of two requests took.
RUNS = {
    "a": ("vllm", "13b", "a800", 1.0, 2.0),
    "b": ("vllm", "13b", "rtx4090", 3.0, None),
    "c": ("tgi", "7b", "a800", 4.0, 5.0),
}


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    return [row(tmp_path / name, *told) for name, told in RUNS.items()]


def row(folder: Path, engine: str, model: str, machine: str, first_s: float, second_s: float | None) -> Row:
    plan = serving_plan("serve=paper", "serve.requests=2", f"engine={engine}", f"model={model}", f"hardware={machine}")
    broken = {"problem": "gone"} if second_s is None else {}
    return served_row(folder, plan, answer(0, takes_s=first_s), answer(1, takes_s=second_s or 9.0, **broken))


def views(rows: list[Row], *asked: str) -> dict[str, View]:
    found = PAPER.beside(ServingSection(tuple(rows))).views(asked)
    return {view.name: view for view in found if view.name != "fig06"}


def test_machines_stand_beside_each_other_by_the_time_to_answer_a_share(rows: list[Row]) -> None:
    (view,) = views(rows).values()
    assert (view.name, view.table.title) == ("fig10", "figure 10 of the paper, latencies, machine beside machine")
    cells = {line[:3]: line[3:] for line in view.table.rows}
    assert cells["13b", "vllm", "a800"] == ("1.00", "1.00", "2.00", "2.00", "2.00")
    assert cells["13b", "vllm", "rtx4090"] == ("3.00", "3.00", "-", "-", "-")
    assert len(cells) == 3
    chart = next(chart for chart in view.charts if chart.title.endswith("13b on vllm"))
    drawn = {trace.name: (list(trace.x), list(trace.y)) for trace in chart.traces}
    assert drawn == {"a800": ([1.0, 2.0], [50.0, 100.0]), "rtx4090": ([3.0], [50.0])}
    assert view.missing == ["python -m llmexp experiment=paper_fig10 hardware=rtx3090"]


def test_a_figure_that_is_asked_has_its_own_model_and_what_the_paper_says_of_it(rows: list[Row]) -> None:
    found = views(rows, "fig07", "fig08")
    assert {line[:3] for line in found["fig07"].table.rows} == {("7b", "tgi", "a800")}
    assert {line[2] for line in found["fig08"].table.rows} == {"a800", "rtx4090"}
    assert any("A800 has the lowest latencies nearly everywhere" in line for line in found["fig08"].table.legend)
    assert not found["fig07"].missing


def test_one_run_is_beside_nothing(rows: list[Row], tmp_path: Path) -> None:
    assert views(rows[:1]) == {}
    other = row(tmp_path / "d", "transformers", "tiny", "cpu", 1.0, 1.0)
    assert {line[0] for line in views([other], "fig08")["fig08"].table.rows} == {"tiny"}
