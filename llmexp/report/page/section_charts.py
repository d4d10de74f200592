"""The charts of a section in their order: on its page, and as the figures of a paper."""

from __future__ import annotations

from dataclasses import replace

from llmexp.report.page.chart import Chart, bars_chart
from llmexp.report.section import ReportSection

# Nobody reads more bars.
MOST_BARS = 100


def section_charts(section: ReportSection) -> list[Chart]:
    """Return the charts, of which the first answers the section's question.

    A single run has no bars to compare, and bars other than those of the rate are in the section's own charts, where
    there are some.
    """
    bars, own = bar_charts(section), list(section.charts)
    return own if own and len(section.rows) == 1 else [*bars[:1], *(own or bars[1:])]


def bar_charts(section: ReportSection) -> list[Chart]:
    """Return the panels that have a value as charts."""
    shown = replace(section, rows=section.rows[:MOST_BARS])
    names = [shown.named(row) for row in shown.rows]
    panels = [bars for bars in shown.panels if any(value is not None for value in bars.ours)] if shown.rows else []
    note = f"The first {MOST_BARS} of {len(section.rows)} runs." * (len(section.rows) > MOST_BARS)
    return [replace(bars_chart(bars, names, shown.marks), note=note) for bars in panels]
