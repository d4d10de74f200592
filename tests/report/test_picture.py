"""What all pictures draw alike: curves with whiskers and signs."""

from __future__ import annotations

from llmexp.report.picture import CurvePoint, draw_curve, new_figure


def test_a_curve_has_a_whisker_for_each_interval_and_the_sign_of_a_run():
    axes = new_figure(4, 3, "a").subplots()
    points = [CurvePoint(1, 5.0), CurvePoint(2, 7.0, (6.0, 8.0), "!")]
    draw_curve(axes, points, "black", marker="o")
    assert [list(values) for values in axes.lines[0].get_xydata()] == [[1, 5], [2, 7]]
    (whiskers,) = axes.collections
    assert [segment.tolist() for segment in whiskers.get_segments()] == [[[2, 6], [2, 8]]]
    assert [(text.get_text(), text.xy) for text in axes.texts] == [("!", (2, 7.0))]


def test_without_repeats_a_curve_is_a_line_alone():
    axes = new_figure(4, 3, "a").subplots()
    draw_curve(axes, [CurvePoint(1, 5.0), CurvePoint(2, 7.0)], "black")
    assert not axes.collections
    assert not axes.texts
