"""Charts as the page's own markup: SVG whose places are percentages, so that it fits a phone and needs no script.

Colors and sizes of text are left to the style sheet, which knows whether the page is dark or printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from llmexp.record.digits import rounded
from llmexp.report.columns import Whisker
from llmexp.report.page.axis import Axis
from llmexp.report.page.chart import MOST_POINTS, Chart, ChartTrace

COLORS, DASHES, MARKERS = 6, 5, 6
# Names of more points would cover each other; a point tells its name where the pointer rests on it.
MOST_NAMED = 24
# Percent of the plot's width.
LEAST_BETWEEN_NAMES = 25


def drawing(chart: Chart) -> str:
    """Return the markup of a chart, with its legend where it has several lines."""
    legend = _legend(chart.traces, chart.has_bars) if chart.has_legend else ""
    return legend + (_bars(chart) if chart.has_bars else _plot(chart))


def _legend(traces: Sequence[ChartTrace], of_bars: bool) -> str:
    keys = (_key(trace, number, of_bars) for number, trace in enumerate(traces))
    return f'<ul class="legend">{"".join(keys)}</ul>'


def _key(trace: ChartTrace, number: int, of_bars: bool) -> str:
    if of_bars:
        kind = f"bar c{number % COLORS}" if trace.mode == "bars" else "mark"
        sample = f'<span class="key"><span class="{kind}"></span></span>'
    else:
        line = f'<path class="{_line(number)}" d="M0 7H30"/>' if "lines" in trace.mode else ""
        mark = f'<use {_mark(trace, number)} x="15" y="7"/>'
        sample = f'<svg class="key" width="30" height="14">{line}{mark * ("markers" in trace.mode)}</svg>'
    return f"<li>{sample} {escape(trace.name)}</li>"


def _mark(trace: ChartTrace, number: int) -> str:
    look = _look(trace, number)
    return f'class="c{look % COLORS}{" hollow" * trace.hollow}" href="#m{look % MARKERS}"'


def _look(trace: ChartTrace, number: int) -> int:
    return number if trace.look is None else trace.look


def _line(number: int) -> str:
    return f"line c{number % COLORS} d{number % DASHES}"


def _bars(chart: Chart) -> str:
    """Return a row for each category with a bar for each trace of bars; marks lie over the first."""
    rows = [trace for trace in chart.traces if trace.mode == "bars"]
    marks = [trace for trace in chart.traces if trace.mode != "bars"]
    reach = max((high for trace in chart.traces for high in _reaches(trace)), default=0.0) or 1.0
    parts = [f'<div class="bars" role="img" aria-label="{escape(chart.alternative)}">']
    for place, name in enumerate(rows[0].x):
        tracks = "".join(_track(trace, place, number, reach, marks * (not number)) for number, trace in enumerate(rows))
        parts.append(f'<div class="row"><span class="name">{escape(str(name))}</span><span>{tracks}</span></div>')
    return "".join([*parts, "</div>"])


def _reaches(trace: ChartTrace) -> list[float]:
    known = [value for value in trace.y if value is not None]
    return [*known, *(interval[1] for interval in trace.intervals if interval)]


def _track(trace: ChartTrace, place: int, number: int, reach: float, marks: Sequence[ChartTrace]) -> str:
    value, furthest = trace.y[place], trace.y[place] or 0.0
    parts = [f'<span class="bar c{number % COLORS}" style="width:{100 * (value or 0.0) / reach:.1f}%"></span>']
    if interval := _at(trace.intervals, place):
        low, high = (100 * end / reach for end in interval)
        parts.append(f'<span class="whisker" style="left:{low:.1f}%;width:{high - low:.1f}%"></span>')
        furthest = max(furthest, interval[1])
    for printed in (mark.y[place] for mark in marks):
        if printed is not None:
            parts.append(f'<span class="mark" style="left:{100 * printed / reach:.1f}%"></span>')
            furthest = max(furthest, printed)
    told = trace.labels[place] if trace.labels else "" if value is None else rounded(value)
    title = f' title="{escape(trace.words[place])}"' if trace.words and trace.words[place] else ""
    parts.append(f'<span class="value"{title} style="left:{100 * furthest / reach:.1f}%">{escape(told)}</span>')
    return f'<span class="track">{"".join(parts)}</span>'


def _at(values: Sequence[Whisker | None], place: int) -> Whisker | None:
    return values[place] if values else None


def _plot(chart: Chart) -> str:
    """Return lines and points between two axes."""
    traces = chart.traces
    across, up = _axes(chart)
    left = max(len(text) for _, text in up.numbers) if up.numbers else 1
    parts = [
        f'<p class="axis">{escape(chart.y_label)}</p>',
        f'<svg class="xy" role="img" aria-label="{escape(chart.alternative)}" style="--left:{left}">',
        *_limits(chart, across),
        *_grid(across, up),
        f'<text class="axis" x="100%" y="100%" dy="2.7em" text-anchor="end">{escape(chart.x_label)}</text>',
    ]
    for number, trace in enumerate(traces):
        parts += _trace(trace, number, across, up)
    for number, trace in enumerate(traces):
        parts += _labels(trace, number, across, up)
    return "".join([*parts, "</svg>"])


def _axes(chart: Chart) -> tuple[Axis, Axis]:
    traces = chart.traces
    points = [(float(trace.x[place]), trace.y[place] or 0.0) for trace in traces for place in trace.known]
    wide = [end for trace in traces for interval in trace.x_intervals if interval for end in interval]
    high = [end for trace in traces for interval in trace.intervals if interval for end in interval]
    x, y = [*(x for x, _ in points), *wide, *(limit for _, limit in chart.limits)], [*(y for _, y in points), *high]
    marked = any("markers" in trace.mode for trace in traces)
    across = Axis.of_powers(x, 6) if chart.log_x else Axis.of(x, 4, from_zero=not marked, padded=marked)
    return across, Axis.of_powers(y, 6) if chart.log_y else Axis.of(y, 5, chart.from_zero)


def _limits(chart: Chart, across: Axis) -> Iterator[str]:
    """Yield lines with what lies beyond; near lines have their names in one."""
    named: list[tuple[float, str]] = []
    for name, limit in chart.limits:
        x = across.percent(limit)
        yield f'<rect class="beyond" x="{x:.2f}%" y="0" width="{100 - x:.2f}%" height="100%"/>'
        yield f'<line class="limit" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="100%"/>'
        is_near = named and x - named[-1][0] < LEAST_BETWEEN_NAMES
        named.append((x, f"{named.pop()[1]}, {name}" if is_near else name))
    for x, name in named:
        side = f'text-anchor="{"end" if x > 60 else "start"}"'
        yield f'<text x="{x:.2f}%" y="0" dy="-.4em" {side}>{escape(name)}</text>'


def _grid(across: Axis, up: Axis) -> Iterator[str]:
    for value, text in up.numbers:
        y = 100 - up.percent(value)
        yield f'<line class="grid" x1="0" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>'
        yield f'<text x="0" y="{y:.2f}%" dx="-.6em" dy=".35em" text-anchor="end">{text}</text>'
    for value, text in across.numbers:
        x = f"{across.percent(value):.2f}%"
        yield f'<line class="tick" x1="{x}" x2="{x}" y1="100%" y2="100%"/>'
        yield f'<text x="{x}" y="100%" dy="1.4em" text-anchor="middle">{text}</text>'


def _trace(trace: ChartTrace, number: int, across: Axis, up: Axis) -> Iterator[str]:
    if "lines" in trace.mode:
        yield '<svg viewBox="0 0 1000 1000" preserveAspectRatio="none">'
        yield f'<path class="{_line(number)}" d="{_path(trace, across, up)}"/></svg>'
    color = f"c{_look(trace, number) % COLORS}"
    for place in trace.known:
        x, y = across.percent(float(trace.x[place])), 100 - up.percent(trace.y[place] or 0.0)
        if interval := _at(trace.intervals, place):
            low, high = (100 - up.percent(end) for end in interval)
            yield f'<line class="error {color}" x1="{x:.2f}%" x2="{x:.2f}%" y1="{low:.2f}%" y2="{high:.2f}%"/>'
        if interval := _at(trace.x_intervals, place):
            low, high = (across.percent(end) for end in interval)
            yield f'<line class="error {color}" x1="{low:.2f}%" x2="{high:.2f}%" y1="{y:.2f}%" y2="{y:.2f}%"/>'
        if "markers" in trace.mode:
            yield f'<use {_mark(trace, number)} x="{x:.2f}%" y="{y:.2f}%">{_title(trace, place)}</use>'


def _path(trace: ChartTrace, across: Axis, up: Axis) -> str:
    """Return the line in thousandths of the plot; it has a gap where a value is missing."""
    known, parts, last = set(trace.known), [], -2
    for place in sorted(known):
        x, y = across.percent(float(trace.x[place])), 100 - up.percent(trace.y[place] or 0.0)
        parts.append(f"{'L' if place == last + 1 else 'M'}{round(10 * x)} {round(10 * y)}")
        last = place
    return "".join(parts)


def _title(trace: ChartTrace, place: int) -> str:
    """Return what a point tells where the pointer rests on it; of a cloud of points nobody asks for one."""
    if len(trace.x) > MOST_POINTS:
        return ""
    told = f"{_name(trace, place)}: {rounded(float(trace.x[place]))}, {rounded(trace.y[place] or 0.0)}"
    return f"<title>{escape(told)}</title>"


def _name(trace: ChartTrace, place: int) -> str:
    return trace.words[place] if trace.words else trace.name


def _labels(trace: ChartTrace, number: int, across: Axis, up: Axis) -> Iterator[str]:
    """Yield what stands beside points; the page's script moves labels that cover each other."""
    named = [place for place in trace.known if trace.labels and trace.labels[place]]
    for place in named if len(named) <= MOST_NAMED else ():
        x, y = across.percent(float(trace.x[place])), 100 - up.percent(trace.y[place] or 0.0)
        side = 'text-anchor="end" dx="-9"' if x > 60 else 'dx="9"'
        text, color = escape(trace.labels[place]), f"c{_look(trace, number) % COLORS}"
        yield f'<text class="label {color}" x="{x:.2f}%" y="{y:.2f}%" dy="-5" {side}>{text}</text>'
