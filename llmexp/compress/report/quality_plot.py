"""Perplexity over the bytes of the compressed layers: a picture and a page's chart for each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from llmexp.compress.report.front import Quality, front, qualities
from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.report.picture import COLORS, INK, named_beside, new_figure, plain, save
from llmexp.report.section import ReportSection
from llmexp.report.signs import doubt_sign

MB = 1e6
QUALITY = "quality"
SIZE, PERPLEXITY = "compressed layers by their bits, MB", "perplexity of held-out documents"
WHISKERS = "Whiskers: perplexity at the ends of the ratio's 95 % interval, by documents."
NOTE = "The line joins the runs that no other beats in both; down and left is better."


def drawn_groups(section: ReportSection) -> Iterator[tuple[str, list[Quality]]]:
    """Yield the groups of comparable runs of two sizes or more, with what they share."""
    for shared, group in qualities(section.rows).items():
        if len({one.layers_bytes for one in group}) > 1:
            yield shared, group


def quality_charts(section: ReportSection) -> Iterator[Chart]:
    """Yield a chart for each group."""
    groups = list(drawn_groups(section))
    for shared, group in groups:
        names = [section.named(one.row) for one in group]
        best, sizes = front(group), [one.layers_bytes / MB for one in group]
        traces = [
            ChartTrace("runs", sizes, [one.perplexity for one in group], names, _whiskers(group), "markers", names),
            ChartTrace(
                "Pareto-optimal",
                [one.layers_bytes / MB for one in best],
                [one.perplexity for one in best],
                mode="lines",
            ),
            ChartTrace("original", [min(sizes), max(sizes)], [group[0].original] * 2, mode="lines"),
        ]
        title = f"Quality and bytes ({shared})" if len(groups) > 1 else "Quality and bytes"
        yield Chart(title, SIZE, PERPLEXITY, traces, NOTE, from_zero=False, log_y=is_wide(group), whiskers=WHISKERS)


def draw_quality(section: ReportSection, path: Path) -> list[Path]:
    """Draw a picture for each group, named after `path`; return the paths."""
    written = []
    for number, (shared, group) in enumerate(drawn_groups(section)):
        place = named_beside(path, f"{QUALITY}_{number + 1}" if number else QUALITY)
        _draw(group, f"{shared}\n{NOTE} {WHISKERS}", place)
        written.append(place)
    return written


def is_wide(group: Sequence[Quality]) -> bool:
    """Tell whether perplexities reach so far that only a logarithmic axis shows the low ones."""
    values = [one.perplexity for one in group]
    return max(values) > 3 * min(values)


def _whiskers(group: Sequence[Quality]) -> list[tuple[float, float] | None]:
    return [one.interval for one in group]


def _draw(group: Sequence[Quality], title: str, path: Path) -> None:
    figure = new_figure(7.5, 4.8, title)
    axes = figure.subplots()
    plain(axes, grid="y")
    best = front(group)
    axes.plot([one.layers_bytes / MB for one in best], [one.perplexity for one in best], color=COLORS[0], linewidth=1.2)
    axes.axhline(group[0].original, color=COLORS[-1], linestyle="--", linewidth=1, label="original")
    for one in group:
        x, color = one.layers_bytes / MB, COLORS[0] if one in best else COLORS[1]
        axes.plot([x], [one.perplexity], "o", color=color, markersize=4.5)
        if one.interval:
            axes.vlines(x, *one.interval, color=color, linewidth=1.2)
        name = f"{one.row.plan.name_fields['compress']} {doubt_sign(one.row)}".rstrip()
        axes.annotate(name, (x, one.perplexity), xytext=(5, 4), textcoords="offset points", fontsize=7.5, color=INK)
    axes.margins(x=0.12)
    if is_wide(group):
        axes.set_yscale("log")
    axes.set_xlabel(SIZE, fontsize=9)
    axes.set_ylabel(PERPLEXITY, fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    save(figure, path)
