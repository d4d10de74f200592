"""Curves of rates over sizes, with log axes, of the families that have some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.analysis.inference import mean_interval
from llmexp.micro.families.base import Curves, Family
from llmexp.micro.report.tables import heading_of
from llmexp.micro.report.units import in_bytes
from llmexp.record.result import ResultPoint
from llmexp.registry import families
from llmexp.report.picture import COLORS, CurvePoint, draw_curve, new_figure, plain, save
from llmexp.report.row import Row
from llmexp.report.signs import doubt_sign

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from llmexp.report.section import ReportSection

FEWEST_POINTS = 3
MARKERS = "osD^vPX*"
Line = list[tuple[float, ResultPoint]]


@dataclass(frozen=True)
class FamilyCurves:
    """The lines of a family over one of its sizes, by name."""

    family: Family[Any]
    curves: Curves
    lines: dict[str, Line]


def draw_curves(section: ReportSection, path: Path) -> list[Path]:
    """Draw a picture for each family with lines of three sizes or more, named after `path`; return the paths."""
    written = []
    for found in curves_of(section):
        place = path.with_name(f"{path.stem}_{found.family.name}{path.suffix}")
        _draw(found, section.title, place)
        written.append(place)
    return written


def curves_of(section: ReportSection) -> Iterator[FamilyCurves]:
    """Yield the families with lines of three sizes or more."""
    for family in families():
        if not family.curves:
            continue
        lines: dict[str, Line] = {}
        for row in section.rows:
            for name, line in _lines(row, family.name, family.curves.size):
                label = f"{section.label(row)}: {name}" if len(section.rows) > 1 else name
                label = f"{label} {doubt_sign(row)}".rstrip()
                lines[label] = line
        if lines:
            yield FamilyCurves(family, family.curves, lines)


def _lines(row: Row, family: str, size: str) -> Iterator[tuple[str, Line]]:
    """Yield the lines of a run: points that differ in the size along the axis only."""
    found: dict[str, Line] = {}
    for point in row.result.points if row.result else ():
        if point.params["family"] == family and not point.problem:
            others = {name: value for name, value in point.params.items() if name not in ("family", "what_ran", size)}
            found.setdefault(_name(others, family), []).append((float(point.params[size]), point))
    for name, line in found.items():
        if len(line) >= FEWEST_POINTS:
            yield name, sorted(line, key=lambda each: each[0])


def _name(params: dict[str, object], family: str) -> str:
    words = [str(value) for name, value in params.items() if name in ("kind", "dtype") and value != family]
    return " ".join(words + [f"{name}={value}" for name, value in params.items() if name not in ("kind", "dtype")])


def _draw(found: FamilyCurves, title: str, path: Path) -> None:
    size, panels = found.curves.size, found.curves.quantities
    figure = new_figure(5.2 * len(panels), 4.2 + 0.17 * len(found.lines) / 2, f"{title}\n{found.family.title}")
    for axes, name in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        plain(axes, grid="y")
        heading, divisor = heading_of(name, found.family, [point for line in found.lines.values() for _, point in line])
        for number, (label, line) in enumerate(found.lines.items()):
            draw_curve(
                axes,
                [curve_point(x, point, name, divisor) for x, point in line],
                COLORS[number % len(COLORS)],
                marker=MARKERS[number // len(COLORS) % len(MARKERS)],
                markersize=3.5,
                linewidth=1.2,
                linestyle=("-", "--", ":")[number // len(COLORS) % 3],
                label=label,
            )
        axes.set_ylabel(heading, fontsize=9)
        _scale(axes, size, found)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    save(figure, path)


def _scale(axes: Axes, size: str, found: FamilyCurves) -> None:
    axes.set_xscale("log", base=2)
    if size != "bytes":
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"{size}, tokens", fontsize=9)
        return
    axes.set_yscale("log")
    axes.set_xlabel("size", fontsize=9)
    sizes = sorted({int(x) for line in found.lines.values() for x, _ in line})
    axes.set_xticks(sizes, [in_bytes(each) for each in sizes], rotation=45, ha="right", fontsize=7)
    axes.minorticks_off()


def curve_point(x: float, point: ResultPoint, name: str, divisor: float) -> CurvePoint:
    """Return a quantity of a point in the unit of the heading, with its interval by the repeats."""
    metric = point.metrics[name]
    assert metric
    return CurvePoint(x, metric.mean / divisor, mean_interval(metric, 1 / divisor))
