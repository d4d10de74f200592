"""Perplexity over the bytes of the compressed layers: a picture and a page's chart for each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from llmexp.compress.report.front import Quality, front, qualities
from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.report.picture import COLORS, CurvePoint, draw_curve, named_beside, new_figure, plain, save
from llmexp.report.section import ReportSection

MB = 1e6
QUALITY = "quality"
WIDE = 3
MARKERS = "osD^vPX*"
SIZE, PERPLEXITY = "compressed layers by their bits, MB", "perplexity of held-out documents"
WHISKERS = "Whiskers: 95 % intervals of the ratio to the original, by documents."
NOTE = "The line joins the runs that no other beats in both."


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
        _draw(section, group, f"{shared}\n{NOTE}\n{WHISKERS}", place)
        written.append(place)
    return written


def is_wide(group: Sequence[Quality]) -> bool:
    """Tell whether perplexities reach so far that only a logarithmic axis shows the low ones."""
    values = [one.perplexity for one in group]
    return max(values) > WIDE * min(values)


def _whiskers(group: Sequence[Quality]) -> list[tuple[float, float] | None]:
    return [one.interval for one in group]


def _draw(section: ReportSection, group: Sequence[Quality], title: str, path: Path) -> None:
    figure = new_figure(8.5, max(4.4, 0.19 * len(group) + 2), title)
    axes = figure.subplots()
    plain(axes, grid="y")
    best = front(group)
    places = [one.layers_bytes / MB for one in best], [one.perplexity for one in best]
    axes.plot(*places, color=COLORS[-1], linewidth=1, label="the front")
    axes.axhline(group[0].original, color=COLORS[-1], linestyle="--", linewidth=1, label="original")
    for number, one in enumerate(group):
        name = section.named(one.row)
        mark = MARKERS[number // len(COLORS) % len(MARKERS)]
        point = CurvePoint(one.layers_bytes / MB, one.perplexity, one.interval)
        draw_curve(axes, [point], COLORS[number % len(COLORS)], marker=mark, markersize=5, linestyle="", label=name)
    if is_wide(group):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(which="minor", labelsize=8)
    axes.set_xlabel(SIZE, fontsize=9)
    axes.set_ylabel(PERPLEXITY, fontsize=9)
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    save(figure, path)
