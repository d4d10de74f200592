"""The page's charts of microbenchmarks: rates over sizes."""

from __future__ import annotations

from collections.abc import Iterator

from llmexp.micro.report.curves import FamilyCurves, Line, curve_point, curves_of
from llmexp.micro.report.tables import heading_of
from llmexp.report.page.chart import MOST_LINES, Chart, ChartTrace
from llmexp.report.section import ReportSection

BYTES = "bytes"


def micro_charts(section: ReportSection) -> Iterator[Chart]:
    """Yield a chart for each quantity of each family with lines of three sizes or more."""
    for found in curves_of(section):
        for name in found.curves.quantities:
            yield _chart(found, name)


def _chart(found: FamilyCurves, name: str) -> Chart:
    """Return a quantity over the size; rates over bytes are logarithmic, as they reach over powers of ten."""
    size, lines = found.curves.size, dict(list(found.lines.items())[:MOST_LINES])
    heading, divisor = heading_of(name, found.family, [point for line in lines.values() for _, point in line])
    traces = [_trace(label, line, name, divisor) for label, line in lines.items()]
    several = len(found.curves.quantities) > 1
    title = found.family.title[:1].upper() + found.family.title[1:] + f", {heading}" * several
    cut = f"The first {MOST_LINES} of {len(found.lines)} lines." * (len(found.lines) > MOST_LINES)
    label = "size, bytes" if size == BYTES else f"{size}, tokens"
    return Chart(title, label, heading, traces, cut, log_x=True, log_y=size == BYTES)


def _trace(label: str, line: Line, name: str, divisor: float) -> ChartTrace:
    points = [curve_point(x, point, name, divisor) for x, point in line]
    x, y = [point.x for point in points], [point.y for point in points]
    return ChartTrace(label, x, y, intervals=[point.interval for point in points])
