"""A chart of the page, as what Plotly draws: lines, points or bars that can be told apart without color."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MARKERS = ("circle", "square", "diamond", "cross", "triangle-up", "x", "star")
Mode = Literal["lines", "markers", "lines+markers", "bars"]


@dataclass(frozen=True)
class ChartTrace:
    """A named line, cloud of points or row of bars; `errors` are half widths along y, `words` one text a point."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    words: Sequence[str] = ()
    errors: Sequence[float] = ()
    mode: Mode = "lines+markers"


@dataclass(frozen=True)
class Chart:
    """A chart with its title, the labels of its axes with their units, and a note on how to read it."""

    title: str
    x_label: str
    y_label: str
    traces: Sequence[ChartTrace]
    note: str = ""
    from_zero: bool = True

    @property
    def figure(self) -> dict[str, Any]:
        """The chart as JSON for the page's script: Plotly's traces, and the axes' titles."""
        drawn = [_plotly(trace, number) for number, trace in enumerate(self.traces)]
        axes = {"x": self.x_label, "y": self.y_label, "from_zero": self.from_zero}
        return {"title": self.title, "note": self.note, "traces": drawn, **axes}


@dataclass(frozen=True)
class Matrix:
    """A heat map that is a table: a cell is a text and its share of the largest value, or a text without a value."""

    title: str
    corner: str
    headers: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, float | None]]]]
    note: str = ""


def _plotly(trace: ChartTrace, number: int) -> dict[str, Any]:
    """Return a trace for Plotly; colors are left to the page, which knows whether it is dark."""
    y = [value if value is not None and isfinite(value) else None for value in trace.y]
    drawn: dict[str, Any] = {"name": trace.name, "x": list(trace.x), "y": y}
    if trace.mode == "bars":
        drawn |= {"type": "bar"}
    else:
        drawn |= {"type": "scatter", "mode": trace.mode}
        drawn |= {"line": {"dash": DASHES[number % len(DASHES)], "width": 2}}
        drawn |= {"marker": {"symbol": MARKERS[number % len(MARKERS)], "size": 8}}
    if trace.words:
        drawn["customdata"] = list(trace.words)
    if any(trace.errors):
        drawn["error_y"] = {"type": "data", "array": list(trace.errors), "visible": True}
    return drawn
