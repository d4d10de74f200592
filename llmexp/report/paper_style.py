"""Charts as figures of a paper: as wide as a column, without a title, readable without color, with embedded fonts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from llmexp.record.digits import rounded
from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.report.picture import empty_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCH, PLOT_HEIGHT_INCH = 3.3, 2.2
ROW_INCH, AROUND_BARS_INCH, LEGEND_INCH = 0.16, 0.5, 0.14
FONT_POINTS, SMALL_POINTS = 8, 7
DOTS_PER_INCH = 600
# Okabe and Ito's colors; lines differ in dashes and marks too, and bars in hatches alone.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#000000")
FILL, HATCHES = "#b3d1e8", ("", "////", "....", "xxxx", "\\\\\\\\", "++++")
DASHES, MARKERS = ("-", "--", ":", "-.", (0, (6, 1))), "osD^vP"
STYLE: dict[str, Any] = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],  # matplotlib brings it, so that a figure looks the same everywhere
    "font.size": FONT_POINTS,
    "axes.labelsize": FONT_POINTS,
    "legend.fontsize": SMALL_POINTS,
    "xtick.labelsize": SMALL_POINTS,
    "ytick.labelsize": SMALL_POINTS,
    "axes.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.fonttype": "path",
}
# A label of a name is broken after so many characters.
NAME_CHARACTERS = 22
# Where a label may stand beside its point, in points of print: alignment, then offset.
PLACES = (("left", 4, 3), ("right", -4, 3), ("left", 4, -8), ("right", -4, -8), ("center", 0, 6), ("center", 0, -11))


@dataclass(frozen=True)
class DrawnFigure:
    """A figure that was written, and what its caption has to say."""

    path: Path
    caption: str


def draw_chart(chart: Chart, path: Path) -> DrawnFigure:
    """Write a chart in this style; raises RecordError without matplotlib."""
    figure = empty_figure(WIDTH_INCH, _height(chart), DOTS_PER_INCH)
    from matplotlib import rc_context

    with rc_context(STYLE):
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        (_draw_bars if chart.has_bars else _draw_plot)(axes, chart)
        if chart.has_legend:
            figure.legend(loc="outside lower center", ncols=_legend_columns(chart), frameon=False)
        _label_points(figure, axes, chart)
        save(figure, path)
    return DrawnFigure(path, f"{chart.title}. {chart.caption}".strip())


def _height(chart: Chart) -> float:
    legend = LEGEND_INCH * -(-len(chart.traces) // _legend_columns(chart)) if chart.has_legend else 0.0
    if not chart.has_bars:
        return PLOT_HEIGHT_INCH + legend
    rows = _of_bars(chart)
    lines = sum(max(len(rows), len(_name(name).splitlines())) for name in rows[0].x)
    return AROUND_BARS_INCH + ROW_INCH * lines + legend


def _legend_columns(chart: Chart) -> int:
    """Return how many names stand beside each other in the width of a column."""
    longest = max(len(trace.name) for trace in chart.traces)
    return max(1, min(len(chart.traces), 48 // (longest + 8)))


def _of_bars(chart: Chart) -> list[ChartTrace]:
    return [trace for trace in chart.traces if trace.mode == "bars"]


def _name(name: float | str) -> str:
    return "\n".join(wrap(str(name), NAME_CHARACTERS)) or str(name)


def _draw_bars(axes: Axes, chart: Chart) -> None:
    """Draw a row for each category, with a bar for each trace, its interval and its label."""
    rows = _of_bars(chart)
    height, names = 0.8 / len(rows), [_name(name) for name in rows[0].x]
    widest = max((high for trace in chart.traces for high in _reaches(trace)), default=1.0)
    for number, trace in enumerate(rows):
        places = [row - 0.4 + (number + 0.5) * height for row in range(len(names))]
        look: dict[str, Any] = {"facecolor": "white" if number else FILL, "hatch": HATCHES[number % len(HATCHES)]}
        values = [value or 0.0 for value in trace.y]
        axes.barh(places, values, 0.9 * height, edgecolor="black", linewidth=0.5, label=trace.name, **look)
        known = [(place, *ends) for place, ends in zip(places, trace.intervals, strict=False) if ends]
        if known:
            axes.hlines(*zip(*known, strict=True), color="black", linewidth=0.9)
        for place, words, reach in zip(places, _labels(trace), _furthest(chart, trace), strict=True):
            axes.annotate(words, (reach, place), (5, 0), textcoords="offset points", va="center", fontsize=SMALL_POINTS)
    for trace in chart.traces:
        if trace.mode != "bars":
            printed = [(value, row) for row, value in enumerate(trace.y) if value is not None]
            axes.plot(*zip(*printed, strict=True), "D", color="black", mfc="white", ms=3.5, label=trace.name)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1.22 * widest)
    axes.set_xlabel(chart.y_label)
    axes.xaxis.set_major_formatter("{x:,g}")


def _reaches(trace: ChartTrace) -> list[float]:
    return [*(value for value in trace.y if value is not None), *(ends[1] for ends in trace.intervals if ends)]


def _furthest(chart: Chart, trace: ChartTrace) -> list[float]:
    """Return how far each row reaches: its bar, its interval and the marks over it."""
    marks = [other for other in chart.traces if other.mode != "bars"]
    ends = [found[1] if found else 0.0 for found in trace.intervals] or [0.0] * len(trace.y)
    return [max(value or 0.0, ends[row], *(mark.y[row] or 0.0 for mark in marks)) for row, value in enumerate(trace.y)]


def _labels(trace: ChartTrace) -> Sequence[str]:
    return trace.labels or ["" if value is None else rounded(value) for value in trace.y]


def _draw_plot(axes: Axes, chart: Chart) -> None:
    """Draw lines and points with their intervals."""
    for number, trace in enumerate(chart.traces):
        color, places = COLORS[number % len(COLORS)], trace.known
        x, y = [float(trace.x[place]) for place in places], [trace.y[place] or 0.0 for place in places]
        line = DASHES[number % len(DASHES)] if "lines" in trace.mode else "none"
        marker = MARKERS[number % len(MARKERS)] if "markers" in trace.mode else ""
        axes.plot(x, y, color=color, linestyle=line, marker=marker, linewidth=1, markersize=3.5, label=trace.name)
        for ends, draw, other in ((trace.intervals, axes.vlines, x), (trace.x_intervals, axes.hlines, y)):
            found = [(at, ends[place]) for at, place in zip(other, places, strict=True)] if ends else []
            known = [(at, *whisker) for at, whisker in found if whisker]
            if known:
                draw(*zip(*known, strict=True), color=color, linewidth=0.8)
    axes.grid(axis="y", color="#dddddd", linewidth=0.4)
    axes.set_axisbelow(True)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    for axis, is_log in ((axes.xaxis, chart.log_x), (axes.yaxis, chart.log_y)):
        if not is_log:
            axis.set_major_formatter("{x:,g}")
    if chart.log_x:
        axes.set_xscale("log", base=2)
    if chart.log_y:
        axes.set_yscale("log")
    if chart.from_zero:
        axes.set_ylim(bottom=0)


def _label_points(figure: Figure, axes: Axes, chart: Chart) -> None:
    """Write the names of points where nothing else stands; a name without such a place is left out."""
    figure.draw_without_rendering()
    taken = [_around(axes, x, y) for x, y, _ in _points(chart)]
    for x, y, words in _points(chart):
        for align, right, up in PLACES if words and not chart.has_bars else ():
            text = axes.annotate(
                words, (x, y), (right, up), textcoords="offset points", ha=align, fontsize=SMALL_POINTS - 0.5
            )
            box = text.get_window_extent()
            if axes.bbox.containsx(box.x0) and figure.bbox.containsx(box.x1) and not box.count_overlaps(taken):
                taken.append(box)
                break
            text.remove()


def _points(chart: Chart) -> Iterator[tuple[float, float, str]]:
    for trace in chart.traces:
        for place in trace.known if trace.mode != "bars" and not chart.has_bars else ():
            if "markers" in trace.mode:
                yield float(trace.x[place]), trace.y[place] or 0.0, trace.labels[place] if trace.labels else ""


def _around(axes: Axes, x: float, y: float) -> Any:
    from matplotlib.transforms import Bbox

    across, up = axes.transData.transform((x, y))
    size = axes.figure.dpi / 72 * 2
    return Bbox.from_extents(across - size, up - size, across + size, up + size)
