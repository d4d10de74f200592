"""A chart as data: lines, points or bars with their intervals and signs, which each renderer draws in its own way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, Literal

from llmexp.record.digits import rounded
from llmexp.report.coinciding import coinciding
from llmexp.report.columns import Bars, Whisker
from llmexp.report.signs import UNKNOWN, UNSTABLE

Mode = Literal["lines", "markers", "lines+markers", "bars"]
# A line with more points than this looks the same on a page as one that has them all.
MOST_POINTS = 240
# Nobody tells more lines apart.
MOST_LINES = 12
INTERVALS = "Whiskers are 95 % intervals by the repeats."
SIGNS = {UNSTABLE: f"{UNSTABLE} marks an unstable measurement.", UNKNOWN: f"{UNKNOWN} marks unknown stability."}


@dataclass(frozen=True)
class ChartTrace:
    """A named line, cloud of points or row of bars.

    Where given, each point has its own: `words` name it, `labels` stand beside it, and `intervals` are the ends of its
    interval along y, `x_intervals` along x. Traces with the same `look`, which is else their place, have the same color
    and mark; the marks of `hollow` ones are empty. Only pages draw the latter two.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    words: Sequence[str] = ()
    intervals: Sequence[Whisker | None] = ()
    mode: Mode = "lines+markers"
    labels: Sequence[str] = ()
    x_intervals: Sequence[Whisker | None] = ()
    look: int | None = None
    hollow: bool = False

    @property
    def known(self) -> list[int]:
        """The places of the points that have a value."""
        return [place for place, value in enumerate(self.y) if value is not None and isfinite(value)]

    def thinned(self) -> ChartTrace:
        """Return a line with the lowest and the highest point of each piece, so that no peak is lost."""
        size = -(-2 * len(self.y) // MOST_POINTS)
        if self.mode != "lines" or size < 2:
            return self
        kept = {0, len(self.y) - 1}
        for start in range(0, len(self.y), size):
            piece = [place for place in range(start, min(start + size, len(self.y))) if self._value(place) is not None]
            kept |= {min(piece, key=self._value), max(piece, key=self._value)} if piece else {start}
        places = sorted(kept)
        return replace(self, x=[self.x[place] for place in places], y=[self.y[place] for place in places])

    def _value(self, place: int) -> Any:
        value = self.y[place]
        return value if value is not None and isfinite(value) else None


@dataclass(frozen=True)
class Chart:
    """A chart with its title, the labels of its axes with their units, and a note on how to read it.

    Traces of bars are those of the same categories; other traces of such a chart are marks over the bars. Axes are
    logarithmic where `log_x` or `log_y` says so. `limits` are values of x with their names: a page draws them as lines,
    and shades what lies beyond. `whiskers` says what intervals are.
    """

    title: str
    x_label: str
    y_label: str
    traces: Sequence[ChartTrace]
    note: str = ""
    from_zero: bool = True
    log_x: bool = False
    log_y: bool = False
    limits: Sequence[tuple[str, float]] = ()
    whiskers: str = INTERVALS

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Chart:
        """Return a chart of its values by name, with traces that are mappings too."""
        return cls(**{**found, "traces": [ChartTrace(**trace) for trace in found["traces"]]})

    @property
    def values(self) -> dict[str, Any]:
        """The values that `of` takes, with as many points as a page shows."""
        return asdict(replace(self, traces=[trace.thinned() for trace in self.traces]))

    @property
    def has_bars(self) -> bool:
        """Tell whether this is a chart of bars."""
        return any(trace.mode == "bars" for trace in self.traces)

    @property
    def has_legend(self) -> bool:
        """Tell whether traces are told apart by their names, or the only one has the sign of its run there."""
        return len(self.traces) > 1 or any(self.traces[0].name.endswith(f" {sign}") for sign in SIGNS)

    @property
    def name(self) -> str:
        """The name of the chart's file, from its title."""
        return "_".join(re.findall(r"\w+", re.split("[(:]", self.title.lower())[0]))

    @property
    def caption(self) -> str:
        """The note, and what whiskers and signs mean, where there are some."""
        has_intervals = any(any(trace.intervals) or any(trace.x_intervals) for trace in self.traces)
        written = [text for trace in self.traces for text in (trace.name, *trace.labels)]
        signs = [words for sign, words in SIGNS.items() if any(f" {text}".endswith(f" {sign}") for text in written)]
        return " ".join(filter(None, [self.note, self.whiskers * has_intervals, *signs]))

    @property
    def alternative(self) -> str:
        """The chart in words, for those who do not see it: each trace with its first and last values."""
        limits = [f"{name} at {rounded(value)}" for name, value in self.limits]
        return f"{self.title}. {'; '.join([*map(_told, self.traces), *limits])}"


def _told(trace: ChartTrace) -> str:
    if trace.mode == "bars":
        told = [f"{x} {_label(trace, place)}" for place, x in enumerate(trace.x)]
        return f"{trace.name}: {', '.join(told[:MOST_POINTS])}"
    places = trace.known
    if not places:
        return f"{trace.name}: no value"
    ends = [f"{_coordinate(trace.x[place])}, {_coordinate(trace.y[place])}" for place in (places[0], places[-1])]
    return f"{trace.name}: {len(places)} points from ({ends[0]}) to ({ends[1]})"


def _coordinate(value: float | str | None) -> str:
    return value if isinstance(value, str) else rounded(value or 0.0)


def _label(trace: ChartTrace, place: int) -> str:
    """Return what stands beside a bar: its label, or else its value."""
    value = trace.y[place]
    return trace.labels[place] if trace.labels else "" if value is None else rounded(value)


@dataclass(frozen=True)
class Matrix:
    """A heat map that is a table: a cell is a text and its share of the largest value, or a text without a value."""

    title: str
    corner: str
    headers: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, float | None]]]]
    note: str = ""


def bars_chart(bars: Bars, names: Sequence[str], marks: str) -> Chart:
    """Return a panel as a chart; `marks` says where its published values are from."""
    traces = [ChartTrace("measured", names, bars.ours, (), bars.intervals, "bars", bars.told)]
    if any(value is not None for value in bars.published):
        traces.append(ChartTrace(marks or "published", names, bars.published, mode="markers"))
    return Chart(bars.label, "", bars.label, traces)


def drawn_once(traces: Sequence[ChartTrace]) -> tuple[list[ChartTrace], str]:
    """Return lines of which those that coincide are one, and a sentence that names them; empty where none do."""
    groups = coinciding([(trace.x, trace.y) for trace in traces])
    names = [", ".join(traces[place].name for place in group) for group in groups]
    merged = [replace(traces[group[0]], name=name) for group, name in zip(groups, names, strict=True)]
    together = [name for group, name in zip(groups, names, strict=True) if len(group) > 1]
    return merged, f"Lines that coincide are drawn as one: {'; '.join(together)}." if together else ""
