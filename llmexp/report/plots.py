"""The report as a picture: a bar a run for speed and for memory, beside the paper's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from llmexp.reference import SOURCE
from llmexp.report.memory_column import memory_header, memory_unit
from llmexp.report.picture import COLOURS, INK, can_draw, new_figure, plain, save
from llmexp.report.row import OOM, Row
from llmexp.report.run_plots import draw_run
from llmexp.report.signs import PARTLY_TRAINED, doubt_sign
from llmexp.report.table import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["can_draw", "draw", "draw_run"]
NOTE_POINTS, NOTE_CHARACTERS = 6.5, 190
# Nobody reads more, and each takes tens of milliseconds to draw.
MOST_BARS = 100


@dataclass(frozen=True)
class Bars:
    """One panel's values, a row each; None where there is nothing to draw. `words` stand where we have no value, `signs` behind one."""

    label: str
    ours: Sequence[float | None]
    deviations: Sequence[float]
    papers: Sequence[float | None]
    words: Sequence[str]
    signs: Sequence[str]

    @property
    def reach(self) -> list[float]:
        """How far to the right each row's marks go."""
        rows = zip(self.ours, self.deviations, self.papers, strict=True)
        return [max((ours or 0) + deviation, paper or 0) for ours, deviation, paper in rows]


def draw(report: Report, path: Path) -> None:
    """Write a PNG (or SVG, PDF, by the suffix): tokens/s with their deviation on the left, memory on the right, the paper's values as diamonds."""
    every, report = report, replace(report, rows=report.rows[:MOST_BARS])
    title = f"{report.title or 'no runs'}\nbars and numbers: measured, with standard deviation"
    if any(row.paper for row in report.rows):
        title += f"; diamonds: the paper ({SOURCE})"
    if len(every.rows) > MOST_BARS:
        title += f"\nthe first {MOST_BARS} of {len(every.rows)} runs; the table has all"
    notes = _notes(report)
    figure = new_figure(10.5, 1.3 + 0.26 * max(len(report.rows), 4) + 0.12 * len(notes), title)
    figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=NOTE_POINTS)
    panels = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": (3, 2)})
    colours = _colours(report)
    for axes, bars in zip(panels, (_speed(report), _memory(report)), strict=True):
        _draw_bars(axes, bars, colours)
        _write_beside(axes, bars)
    panels[0].set_yticks(range(len(report.rows)), [_label(row, report) for row in report.rows])
    panels[0].set_ylim(len(report.rows) - 0.4, -0.6)
    save(figure, path)


def _speed(report: Report) -> Bars:
    rates = [row.metric("tokens_per_s") for row in report.rows]
    deviations = [(rate.std_between_repeats or rate.std_within_run or 0.0) if rate else 0.0 for rate in rates]
    papers = [row.paper.tokens_per_s if row.paper else None for row in report.rows]
    words = ["out of memory" if row.state == OOM else row.state for row in report.rows]
    signs = [f" {doubt_sign(row)}" if row.doubt else "" for row in report.rows]
    return Bars("tokens/s", [rate.mean if rate else None for rate in rates], deviations, papers, words, signs)


def _memory(report: Report) -> Bars:
    unit, divisor = memory_unit(report)
    label = memory_header(report).replace("peak", "peak allocated").replace("state", "training state").replace(unit, f"({unit} a rank)")
    ours = [row.memory[1] / divisor if row.memory else None for row in report.rows]
    papers = [row.paper.memory_bytes / divisor if row.paper and row.paper.memory_bytes else None for row in report.rows]
    return Bars(label, ours, [0.0] * len(ours), papers, [""] * len(ours), [""] * len(ours))


def _draw_bars(axes: Axes, bars: Bars, colours: Sequence[str]) -> None:
    plain(axes, grid="x")
    rows = range(len(bars.ours))
    axes.barh(rows, [value or 0 for value in bars.ours], height=0.66, color=colours)
    known = [(row, value, bars.deviations[row]) for row, value in enumerate(bars.ours) if value is not None]
    if any(deviation for *_, deviation in known):
        axes.errorbar([v for _, v, _ in known], [r for r, *_ in known], xerr=[d for *_, d in known], fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    printed = [(row, value) for row, value in enumerate(bars.papers) if value is not None]
    axes.plot([v for _, v in printed], [r for r, _ in printed], "D", color=INK, markerfacecolor="white", markersize=4, linestyle="none")
    axes.set_xlabel(bars.label, fontsize=9)


def _write_beside(axes: Axes, bars: Bars) -> None:
    """Write each value, or why there is none, to the right of everything that is drawn in its row."""
    widest = max(bars.reach, default=0) or 1
    for row, (value, words, reach) in enumerate(zip(bars.ours, bars.words, bars.reach, strict=True)):
        text, style = (words, "italic") if value is None else (f"{value:,.1f}{bars.signs[row]}", "normal")
        axes.annotate(text, (reach, row), xytext=(7, 0), textcoords="offset points", va="center", fontsize=7, style=style, color=INK)
    axes.set_xlim(0, 1.16 * widest)


def _colours(report: Report) -> list[str]:
    models = list(dict.fromkeys(row.model for row in report.rows))
    return [COLOURS[models.index(row.model) % len(COLOURS)] for row in report.rows]


def _notes(report: Report) -> list[str]:
    """Why rows are marked, each reason once, in lines that the picture is wide enough for."""
    marked: dict[tuple[str, str], list[str]] = {}
    for row in report.rows:
        if row.doubt:
            marked.setdefault((doubt_sign(row), row.doubt), []).append(_label(row, report))
    notes = [f"{sign} {', '.join(labels)} {doubt}" for (sign, doubt), labels in marked.items()]
    return [line for note in notes for line in wrap(note, NOTE_CHARACTERS, subsequent_indent="   ")]


def _label(row: Row, report: Report) -> str:
    varying = [value for name, value in report.shown(row).items() if name not in report.shared]
    return " ".join([*varying, row.method + PARTLY_TRAINED * row.partly_trained])
