"""Charts as data: captions that explain what is drawn, lines that lose no peak, and lines drawn once."""

from __future__ import annotations

from math import nan

from llmexp.report.page.chart import INTERVALS, Chart, ChartTrace, drawn_once


def line(name, y, x=None):
    return ChartTrace(name, list(range(len(y))) if x is None else x, y, mode="lines")


def test_the_caption_explains_whiskers_and_signs_only_where_there_are_some():
    plain = ChartTrace("F", [1], [2.0])
    marked = ChartTrace("F", [1], [2.0], (), [(1.0, 3.0)], labels=["R !"])
    assert Chart("a", "x", "y", [plain], "Read it.").caption == "Read it."
    assert Chart("a", "x", "y", [marked]).caption == f"{INTERVALS} ! marks an unstable measurement."
    assert "?" in Chart("a", "x", "y", [ChartTrace("F ?", [1], [2.0])]).caption


def test_a_long_line_keeps_its_ends_and_its_peaks():
    heights = [0.0] * 10_000
    heights[4321], heights[777] = 9.0, -3.0
    thin = line("loss", heights).thinned()
    assert len(thin.y) < 300
    assert (max(thin.y), min(thin.y)) == (9.0, -3.0)
    assert (thin.x[0], thin.x[-1]) == (0, 9999)
    assert thin.x[thin.y.index(9.0)] == 4321


def test_a_gap_stays_a_gap():
    thin = line("loss", [1.0] * 2000 + [nan] * 2000).thinned()
    assert any(value != value for value in thin.y)


def test_lines_that_coincide_are_one_and_named_in_words():
    traces = [line("Naive", [3.0, 2.0, 1.0]), line("R", [3.0, 2.001, 1.0]), line("Q", [3.0, 2.5, 2.0])]
    drawn, said = drawn_once(traces)
    assert [trace.name for trace in drawn] == ["Naive, R", "Q"]
    assert said == "Lines that coincide are drawn as one: Naive, R."
    assert drawn_once(traces[1:])[1] == ""


def test_other_places_along_x_are_another_line():
    assert len(drawn_once([line("Naive", [3.0, 1.0]), line("R", [3.0, 1.0], [0, 2])])[0]) == 2


def test_a_chart_comes_back_from_its_values():
    chart = Chart("Loss (nats)", "x", "y", [ChartTrace("F", [1.0, 2.0], [2.0, None], intervals=[(1.0, 3.0), None])])
    again = Chart.of(chart.values)
    assert again.caption == chart.caption
    assert again.name == "loss"
    assert list(again.traces[0].y) == [2.0, None]


def test_a_single_line_is_named_where_its_run_has_a_sign():
    assert Chart("a", "x", "y", [ChartTrace("F !", [1], [2.0])]).has_legend
    assert not Chart("a", "x", "y", [ChartTrace("F", [1], [2.0])]).has_legend
