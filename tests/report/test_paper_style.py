"""Figures of a paper: a column wide, embedded TrueType, no title, readable in gray."""

from __future__ import annotations

import re

import pytest
from matplotlib.image import imread

from llmexp.record.result import Metric, Stability
from llmexp.report import paper_style
from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.report.paper_style import draw_chart
from llmexp.report.picture import empty_figure
from llmexp.report.plots import draw_for_paper
from llmexp.report.table import build_report

BARS = ChartTrace("ours", ["F", "R"], [50.0, None], (), [(40.0, 60.0), None], "bars", ["50.0 !", "out of memory"])


@pytest.fixture
def drawn(monkeypatch):
    made = []
    monkeypatch.setattr(paper_style, "empty_figure", lambda *size: made.append(empty_figure(*size)) or made[-1])
    return made


def test_a_pdf_is_a_column_wide_and_embeds_truetype(tmp_path):
    path = tmp_path / "x.pdf"
    draw_chart(Chart("speed", "", "tokens/s", [BARS]), path)
    content = path.read_bytes()
    width = float(re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", content)[1])
    assert width == pytest.approx(3.3 * 72)
    assert b"/CIDFontType2" in content
    assert b"/Type3" not in content
    assert b"/FontFile2" in content
    assert b"STIXGeneral" in content


def test_bars_have_no_title_and_letters_of_print_size(drawn, tmp_path):
    figure = draw_chart(Chart("A title", "", "tokens/s", [BARS], "A note."), tmp_path / "x.svg")
    (axes,) = drawn[0].axes
    assert drawn[0].get_suptitle() == ""
    assert axes.get_title() == ""
    texts = [*axes.texts, axes.xaxis.label, *axes.get_yticklabels()]
    assert {text.get_text() for text in texts} >= {"50.0 !", "out of memory", "tokens/s", "F", "R"}
    assert {text.get_size() for text in texts} <= {7, 8}
    assert figure.caption.startswith("A title. A note. Whiskers are 95 % intervals")
    assert [list(map(tuple, line)) for line in axes.collections[0].get_segments()] == [[(40.0, 0.0), (60.0, 0.0)]]


def test_what_color_tells_apart_hatches_and_markers_tell_too(drawn, tmp_path):
    other = ChartTrace("theirs", ["F", "R"], [30.0, 20.0], mode="bars")
    draw_chart(Chart("a", "", "tokens/s", [BARS, other]), tmp_path / "bars.png")
    draw_chart(Chart("a", "x", "y", [ChartTrace(name, [1, 2], [1.0, 2.0]) for name in "ab"]), tmp_path / "lines.png")
    bars, lines = (figure.axes[0] for figure in drawn)
    assert len({patch.get_hatch() for patch in bars.patches}) == 2
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines.lines}) == 2
    assert imread(tmp_path / "bars.png").shape[1] == pytest.approx(3.3 * 600, abs=1)


def test_names_of_points_do_not_cover_each_other(drawn, tmp_path):
    names = [f"method {number}" for number in range(12)]
    crowd = ChartTrace("runs", [1.0 + number / 40 for number in range(12)], [5.0] * 12, names, (), "markers", names)
    draw_chart(Chart("a", "GB", "tokens/s", [crowd]), tmp_path / "x.png")
    (axes,) = drawn[0].axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert 2 < len(boxes) < 12
    assert not [1 for place, box in enumerate(boxes) if box.count_overlaps(boxes[:place])]


def test_each_chart_of_a_report_is_a_file(make_run, tmp_path):
    metrics = {"tokens_per_s": Metric(mean=1000.0, std_between_repeats=5.0, n=3), "training_state_bytes": 1e6}
    bad = Stability(verdict="unstable", reasons=["noise: wide"])
    less = metrics | {"training_state_bytes": 5e5}
    runs = [make_run("Naive", metrics=metrics), make_run("F", metrics=less, stability=bad)]
    written = draw_for_paper(build_report(runs), tmp_path / "x.pdf")
    assert [figure.path.name for figure in written] == ["x.pdf", "x_throughput_and_memory.pdf"]
    assert all(figure.path.stat().st_size > 1000 for figure in written)
    assert all("! marks an unstable" in figure.caption for figure in written)
