"""A picture of a run over its time: requests by the client, and the server by its own samples, with the load points.

A gap in a line is a time at which the server told nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.record.digits import GIB
from llmexp.report.picture import COLORS, INK, new_figure, plain, save
from llmexp.serving.analysis.server_load import LoadSeries, of_gpus, resident_bytes, told
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.server_samples import ServerSample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A longer time without a sample is a gap: a page is read every second, and given up after two.
GAP_S = 3.0
_WIDTH_INCH, _PANEL_INCH, _AROUND_INCH = 9.6, 1.7, 1.5
_SHADE = "#f1f3f5"
_FEW_SAMPLES, _HEADROOM = 60, 1.08
# More names than this would run into each other.
_LEVEL_NAMES = 8


@dataclass(frozen=True)
class LoadSpan:
    """A load point on the picture: its name, such as a rate, and when it was measured, in seconds of the samples."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class _Line:
    label: str
    series: LoadSeries
    is_stepped: bool = False


@dataclass(frozen=True)
class _Panel:
    heading: str
    lines: list[_Line] = field(default_factory=list)
    highest: float | None = None

    @property
    def told(self) -> list[_Line]:
        return [line for line in self.lines if line.series]


def draw_timeline(
    title: str,
    requests: Sequence[RequestSample],
    server: Sequence[ServerSample],
    points: Sequence[LoadSpan],
    path: Path,
) -> list[Path]:
    """Draw the picture, with panels for what was told only; return its path, or none where nothing was.

    Raises RecordError without matplotlib.
    """
    panels = [panel for panel in _panels(requests, server) if panel.told]
    if not panels:
        return []
    figure = new_figure(_WIDTH_INCH, _PANEL_INCH * len(panels) + _AROUND_INCH, title)
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, panel)
        _mark(axes, points)
    _name(grid[0], points)
    grid[-1].set_xlabel("time, s", fontsize=9)
    save(figure, path)
    return [path]


def in_flight(requests: Iterable[RequestSample]) -> LoadSeries:
    """Return how many requests had been sent and not answered, at each time at which that changed."""
    changes = sorted(
        (at_s, change)
        for request in requests
        if request.sent_s is not None
        for at_s, change in ((request.sent_s, 1), (request.end_s, -1))
    )
    found: LoadSeries = []
    count = 0
    for at_s, change in changes:
        count += change
        found.append((at_s, count))
    return found


def _panels(requests: Sequence[RequestSample], server: Sequence[ServerSample]) -> list[_Panel]:
    return [
        _Panel(
            "requests",
            [
                _Line("in flight, by the client", in_flight(requests), is_stepped=True),
                _Line("running, by the server", told(server, "running")),
                _Line("waiting, by the server", told(server, "waiting")),
            ],
        ),
        _Panel("KV cache, %", [_Line("in use", _scaled(told(server, "kv_used_share"), 0.01))], highest=100),
        _Panel("host memory, GiB", [_Line("of the server's processes", _scaled(resident_bytes(server), GIB))]),
        _Panel(
            "GPU memory, GiB",
            [_Line("in use on its GPUs", _scaled(of_gpus(server, lambda gpu: gpu.memory_used_bytes), GIB))],
        ),
        _Panel("power, W", [_Line("of its GPUs", of_gpus(server, lambda gpu: gpu.power_w))]),
    ]


def _scaled(series: LoadSeries, unit: float) -> LoadSeries:
    return [(at_s, value / unit) for at_s, value in series]


def _draw(axes: Axes, panel: _Panel) -> None:
    plain(axes, grid="y")
    for line in panel.told:
        color = COLORS[panel.lines.index(line)]
        (_draw_steps if line.is_stepped else _draw_samples)(axes, line, color)
    highest = max(value for line in panel.told for _, value in line.series)
    axes.set_ylim(0, panel.highest or _HEADROOM * highest or None)
    axes.set_ylabel(panel.heading, fontsize=9)
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), fontsize=7.5, frameon=False)


def _draw_steps(axes: Axes, line: _Line, color: str) -> None:
    times_s, values = [at_s for at_s, _ in line.series], [value for _, value in line.series]
    axes.fill_between(times_s, values, step="post", color=color, alpha=0.18, linewidth=0)
    axes.step(times_s, values, where="post", color=color, linewidth=0.9, label=line.label)


def _draw_samples(axes: Axes, line: _Line, color: str) -> None:
    series = _with_gaps(line.series)
    marker = "." if len(series) < _FEW_SAMPLES else None
    times_s, values = [at_s for at_s, _ in series], [value for _, value in series]
    axes.plot(times_s, values, color=color, linewidth=1.3, marker=marker, markersize=3, label=line.label)


def _with_gaps(series: LoadSeries) -> LoadSeries:
    """Return a series with no value in the middle of each long time without samples."""
    found = series[:1]
    for (earlier_s, _), later in pairwise(series):
        if later[0] - earlier_s > GAP_S:
            found.append(((earlier_s + later[0]) / 2, nan))
        found.append(later)
    return found


def _mark(axes: Axes, points: Sequence[LoadSpan]) -> None:
    for point in points:
        axes.axvspan(point.begin_s, point.end_s, color=_SHADE, zorder=0, linewidth=0)
        axes.axvline(point.begin_s, color="#9aa3ab", linewidth=0.7, linestyle=":")


def _name(axes: Axes, points: Sequence[LoadSpan]) -> None:
    for point in points:
        axes.annotate(
            point.name,
            (point.begin_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 3),
            textcoords="offset points",
            fontsize=7.5,
            rotation=0 if len(points) <= _LEVEL_NAMES else 45,
            color=INK,
        )
