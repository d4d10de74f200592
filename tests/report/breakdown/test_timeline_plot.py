"""The picture of a step's timeline: rows, names, units, and nothing outside of it."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.image import imread

from llmexp.record.timeline import COMMUNICATION, COMPUTATION, COPIES, IDLE, PHASE, Timeline
from llmexp.report.breakdown import timeline_plot
from llmexp.report.picture import new_figure


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    figures: list[Any] = []
    monkeypatch.setattr(
        timeline_plot, "new_figure", lambda *arguments: figures.append(new_figure(*arguments)) or figures[-1]
    )
    return figures


BARS = {
    (PHASE, "forward"): [(0.0, 40.0)],
    (PHASE, "backward"): [(40.0, 55.0)],
    (PHASE, "recomputed forward"): [(95.0, 5.0)],
    (COMPUTATION, "QKV"): [(0.0, 30.0), (40.0, 20.0)],
    (COMPUTATION, "Down"): [(30.0, 10.0)],
    (COMMUNICATION, COMMUNICATION): [(60.0, 30.0)],
    (COPIES, COPIES): [(90.0, 0.001)],
    (IDLE, IDLE): [(91.0, 9.0)],
}


def test_rows_stand_in_order_and_all_colors_are_explained(made, tmp_path) -> None:
    timeline_plot.draw_timeline(Timeline("rank0.json.gz", "step 2 of 2", 100.0, BARS), "tiny R", tmp_path / "a.png")
    (figure,) = made
    (axes,) = figure.axes
    assert figure.get_suptitle() == "tiny R\nrank0.json.gz step 2 of 2"
    assert [label.get_text() for label in axes.get_yticklabels()] == [PHASE, COMPUTATION, COMMUNICATION, COPIES, IDLE]
    assert axes.get_xlabel() == "ms from the begin of the step"
    assert axes.get_xlim() == (0, 100)
    named = {text.get_text() for text in axes.texts} | {text.get_text() for text in figure.legends[0].get_texts()}
    assert named == {"forward", "backward", "recomputed forward", "QKV", "Down"}
    assert imread(tmp_path / "a.png").shape[1] == 1440


def test_a_foreign_trace_has_its_name_once_and_kinds_of_work_in_colors_of_their_own(made, tmp_path) -> None:
    bars = {(COMPUTATION, kind): [(float(at), 1.0)] for at, kind in enumerate(("GEMM", "softmax", "elementwise"))}
    timeline_plot.draw_timeline(Timeline("b.json", "", 3.0, bars), "b.json", tmp_path / "b.svg")
    (figure,) = made
    assert figure.get_suptitle() == "b.json"
    assert figure.axes[0].get_xlabel() == "ms from the begin of the trace"
    assert len({tuple(bar.get_facecolor()[0]) for bar in figure.axes[0].collections}) == 3
    assert (tmp_path / "b.svg").read_text().startswith("<?xml")
