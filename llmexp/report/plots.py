"""The report as pictures: a bar a run for its rate and for the section's other quantities, with published values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from llmexp.report.columns import Bars
from llmexp.report.page.section_charts import section_charts
from llmexp.report.paper_style import DrawnFigure, draw_chart
from llmexp.report.picture import COLORS, INK, can_draw, named_beside, new_figure, plain, save
from llmexp.report.run_plots import draw_run
from llmexp.report.section import ReportSection
from llmexp.report.signs import doubt_sign
from llmexp.report.table import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["can_draw", "draw", "draw_for_paper", "draw_report", "draw_run"]
NOTE_POINTS, NOTE_CHARACTERS = 6.5, 190
# Nobody reads more bars, and each takes tens of milliseconds to draw.
MOST_BARS = 100


def draw_report(report: Report, path: Path) -> list[Path]:
    """Write the pictures of each section and return their paths.

    The first one is <name>.png (or SVG, PDF, by the suffix); some sections have more.
    """
    written = []
    for number, section in enumerate(report.sections or (ReportSection(()),)):
        place = path.with_name(f"{path.stem}_{number + 1}{path.suffix}") if number else path
        draw(section, place)
        written += [place, *section.draw_more(place)]
    return written


def draw_for_paper(report: Report, path: Path) -> list[DrawnFigure]:
    """Write each chart of each section as a figure of a paper: first <name>.pdf, then <name>_<chart>.pdf."""
    written = []
    for number, section in enumerate(report.sections):
        place = path.with_name(f"{path.stem}_{number + 1}{path.suffix}") if number else path
        for order, chart in enumerate(section_charts(section)):
            written.append(draw_chart(chart, named_beside(place, chart.name) if order else place))
    return written


def draw(section: ReportSection, path: Path) -> None:
    """Write the bars of a section: the rate with its interval on the left, then further panels.

    Published values are diamonds.
    """
    every, section = section.rows, replace(section, rows=section.rows[:MOST_BARS])
    title = f"{section.title or 'no runs'}\n{section.subtitle}"
    if len(every) > MOST_BARS:
        title += f"\nthe first {MOST_BARS} of {len(every)} runs; the table has all"
    notes, panels = _notes(section), section.panels
    figure = new_figure(10.5, 1.3 + 0.26 * max(len(section.rows), 4) + 0.12 * len(notes), title)
    figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=NOTE_POINTS)
    widths = (3, *[2] * (len(panels) - 1))
    drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False, gridspec_kw={"width_ratios": widths})[0]
    colors = _colors(section)
    for axes, bars in zip(drawn, panels, strict=True):
        _draw_bars(axes, bars, colors)
        _write_beside(axes, bars)
    drawn[0].set_yticks(range(len(section.rows)), [section.label(row) for row in section.rows])
    drawn[0].set_ylim(len(section.rows) - 0.4, -0.6)
    save(figure, path)


def _draw_bars(axes: Axes, bars: Bars, colors: Sequence[str]) -> None:
    plain(axes, grid="x")
    rows = range(len(bars.ours))
    axes.barh(rows, [value or 0 for value in bars.ours], height=0.66, color=colors)
    _draw_intervals(axes, bars)
    printed = [(row, value) for row, value in enumerate(bars.published) if value is not None]
    axes.plot(
        [v for _, v in printed],
        [r for r, _ in printed],
        "D",
        color=INK,
        markerfacecolor="white",
        markersize=4,
        linestyle="none",
    )
    axes.set_xlabel(bars.label, fontsize=9)


def _draw_intervals(axes: Axes, bars: Bars) -> None:
    found = [(row, interval) for row, interval in enumerate(bars.intervals) if interval]
    middles = [(low + high) / 2 for _, (low, high) in found]
    halves = [(high - low) / 2 for _, (low, high) in found]
    if found:
        places = [row for row, _ in found]
        axes.errorbar(middles, places, xerr=halves, fmt="none", ecolor=INK, elinewidth=1, capsize=2)


def _write_beside(axes: Axes, bars: Bars) -> None:
    """Write each value, or why there is none, to the right of everything that is drawn in its row."""
    widest = max(bars.reach, default=0) or 1
    for row, (value, told, reach) in enumerate(zip(bars.ours, bars.told, bars.reach, strict=True)):
        axes.annotate(
            told,
            (reach, row),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            style="italic" if value is None else "normal",
            color=INK,
        )
    axes.set_xlim(0, 1.16 * widest)


def _colors(section: ReportSection) -> list[str]:
    """Return the row colors, one color for each value of the first name field, such as the model."""
    firsts = [next(iter(row.plan.name_fields.values())) for row in section.rows]
    known = list(dict.fromkeys(firsts))
    return [COLORS[known.index(first) % len(COLORS)] for first in firsts]


def _notes(section: ReportSection) -> list[str]:
    """Return why rows are marked, each reason once, in lines that fit the picture's width."""
    marked: dict[tuple[str, str], list[str]] = {}
    for row in section.rows:
        if row.doubt:
            marked.setdefault((doubt_sign(row), row.doubt), []).append(section.label(row))
    notes = [f"{sign} {', '.join(labels)} {doubt}" for (sign, doubt), labels in marked.items()]
    return [line for note in notes for line in wrap(note, NOTE_CHARACTERS, subsequent_indent="   ")]
