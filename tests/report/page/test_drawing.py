"""The page's own drawings: where bars, points and whiskers lie, and that texts are escaped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from llmexp.report.page.axis import Axis
from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.report.page.drawing import drawing


def parsed(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{drawing(chart)}</div>")


def test_a_bar_its_whisker_and_the_published_mark_share_one_scale():
    bars = ChartTrace(
        "ours", ["F <b>", "R"], [50.0, None], (), [(40.0, 60.0), None], "bars", ["50.0 !", "out of memory"]
    )
    marks = ChartTrace("printed", ["F <b>", "R"], [80.0, 20.0], mode="markers")
    text = drawing(Chart("speed", "", "tokens/s", [bars, marks]))
    assert 'class="bar c0" style="width:62.5%"' in text
    assert 'class="whisker" style="left:50.0%;width:25.0%"' in text
    assert 'class="mark" style="left:100.0%"' in text
    assert ">50.0 !<" in text
    assert ">out of memory<" in text
    assert "F &lt;b&gt;" in text
    assert "<b>" not in text


def test_points_have_whiskers_names_and_places_in_percent():
    trace = ChartTrace("runs", [1.0, 3.0], [0.0, 10.0], ["F", "R"], [None, (8.0, 10.0)], "markers", ["F", "R !"])
    root = parsed(Chart("a", "GB", "tokens/s", [trace]))
    marks = root.findall(".//use")
    assert [mark.get("y") for mark in marks] == ["100.00%", "0.00%"]
    assert [mark.find("title").text for mark in marks] == ["F: 1.00, 0", "R: 3.00, 10.0"]
    assert [(one.get("y1"), one.get("y2")) for one in root.findall(".//line[@class='error c0']")] == [
        ("20.00%", "0.00%")
    ]
    assert [text.text for text in root.findall(".//text[@class='label c0']")] == ["F", "R !"]


def test_a_line_has_a_gap_where_a_value_is_missing():
    path = parsed(Chart("a", "x", "y", [ChartTrace("l", [0, 1, 2, 3], [1.0, None, 0.0, 1.0], mode="lines")])).find(
        ".//path"
    )
    assert path.get("d") == "M0 0M667 1000L1000 0"


def test_lines_differ_without_color():
    traces = [ChartTrace(name, [1, 2], [1.0, 2.0]) for name in "abcd"]
    text = drawing(Chart("a", "x", "y", traces))
    assert len(set(re.findall(r"\bd\d\b", text))) == 4
    assert len(set(re.findall(r"#m\d", text))) == 4
    assert text.count("<li>") == 4


def test_axes_end_at_round_numbers_and_shorten_large_ones():
    axis = Axis.of([0.0, 1234.0], 5, from_zero=True)
    assert [text for _, text in axis.numbers] == ["0", "500", "1,000", "1,500"]
    assert [text for _, text in Axis.of([0.0, 3e7], 3, from_zero=True).numbers] == ["0", "10M", "20M", "30M"]
    assert [text for _, text in Axis.of([5.5, 5.6], 4, from_zero=False).numbers] == ["5.50", "5.55", "5.60"]
    assert Axis.of([7.0], 5, from_zero=False).numbers
    assert Axis.of([], 5, from_zero=True).numbers
    assert Axis.of([0.0, 0.0], 5, from_zero=True).numbers


def test_a_logarithmic_axis_has_powers_of_two_with_their_units():
    axis = Axis.of_powers([2.0**8, 2.0**22], 7)
    assert [text for _, text in axis.numbers] == ["256", "1Ki", "4Ki", "16Ki", "64Ki", "256Ki", "1Mi", "4Mi"]
    assert axis.percent(2.0**15) == pytest.approx(50)
    assert [text for _, text in Axis.of_powers([0.25, 1.0], 6).numbers] == ["0.25", "0.5", "1"]


def test_a_whisker_that_reaches_zero_ends_at_the_begin_of_a_logarithmic_axis():
    trace = ChartTrace("rates", [1.0, 4.0], [1.0, 2.0], (), [(0.0, 2.0), None])
    (whisker,) = parsed(Chart("a", "x", "y", [trace], log_x=True, log_y=True)).findall(".//line[@class='error c0']")
    assert (whisker.get("y1"), whisker.get("x1")) == ("100.00%", "4.55%")


def test_what_lies_beyond_a_limit_is_shaded_and_near_limits_share_a_name():
    trace = ChartTrace("runs", [0.0, 100.0], [1.0, 2.0], mode="markers")
    root = parsed(Chart("a", "GiB", "y", [trace], limits=[("small: 50 GiB", 50.0), ("a: 95", 95.0), ("b: 100", 100.0)]))
    beyond = [(one.get("x"), one.get("width")) for one in root.findall(".//rect[@class='beyond']")]
    assert beyond == [("50.00%", "50.00%"), ("90.91%", "9.09%"), ("95.45%", "4.55%")]
    assert [one.get("x1") for one in root.findall(".//line[@class='limit']")] == ["50.00%", "90.91%", "95.45%"]
    names = {text.text: text.get("x") for text in root.findall(".//text")}
    assert names["small: 50 GiB"] == "50.00%"
    assert names["a: 95, b: 100"] == "95.45%"


def test_a_limit_beyond_all_points_is_on_the_axis_and_in_the_words():
    chart = Chart("a", "x", "y", [ChartTrace("t", [1.0, 2.0], [1.0, 2.0])], limits=[("all there is", 4.0)])
    (limit,) = parsed(chart).findall(".//line[@class='limit']")
    assert limit.get("x1") == "95.45%"
    assert chart.alternative.endswith("; all there is at 4.00")


def test_hollow_marks_look_like_the_full_ones_of_their_kind():
    traces = [
        ChartTrace("fits", [1.0], [1.0], mode="markers", look=3),
        ChartTrace("may fit", [2.0], [2.0], mode="markers", look=3, hollow=True),
        ChartTrace("other", [3.0], [3.0], mode="markers"),
    ]
    root = parsed(Chart("a", "x", "y", traces))
    looks = [(use.get("class"), use.get("href")) for use in root.findall(".//use")]
    assert looks == 2 * [("c3", "#m3"), ("c3 hollow", "#m3"), ("c2", "#m2")]


def test_a_chart_says_what_its_whiskers_are():
    trace = ChartTrace("t", [1.0], [1.0], intervals=[(0.5, 2.0)])
    assert Chart("a", "x", "y", [trace]).caption == "Whiskers are 95 % intervals by the repeats."
    assert Chart("a", "x", "y", [trace], whiskers="Whiskers are guesses.").caption == "Whiskers are guesses."
    assert Chart.of(Chart("a", "x", "y", [trace], limits=[("l", 1.0)]).values).limits == [("l", 1.0)]
