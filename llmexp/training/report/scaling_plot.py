"""A plot of speed and scaling efficiency over ranks, a line a series, with published efficiencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.analysis.inference import mean_interval
from llmexp.report.columns import Whisker
from llmexp.report.picture import COLORS, INK, CurvePoint, draw_curve, new_figure, plain, save
from llmexp.report.references.beside import WEAK_SCALING_PERCENT
from llmexp.report.signs import doubt_sign
from llmexp.training.report.programs import engine_names
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.scaling_series import KINDS, ScalingSeries, rate_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from llmexp.training.report.section import TrainingSection

STYLES = dict(zip(KINDS, ("-", "--"), strict=True))
MARKERS = dict(zip(KINDS, ("o", "s"), strict=True))


def draw_scaling(section: TrainingSection, path: Path) -> None:
    """Plot tokens/s on the left, with dotted lines of perfect scaling, and efficiency on the right.

    Diamonds are published efficiencies.
    """
    found = section.series
    diamonds = [_published(section, series) for series in found]
    told = _whiskers(found) + f"; diamonds: {section.beside.marks(WEAK_SCALING_PERCENT)}" * any(diamonds)
    figure = new_figure(
        10.5,
        4.4 + 0.16 * (len(found) // 2),
        f"{section.title}\nover ranks: weak scaling keeps the batch of a rank, strong the global one{told}",
    )
    speed, share = figure.subplots(1, 2)
    ranks = sorted({row.processes for series in found for row in series.rows})
    for axes, label in ((speed, "tokens/s (dotted: nothing lost)"), (share, "scaling efficiency (%)")):
        _prepare(axes, ranks, label)
    engines = engine_names([row for series in found for row in series.rows])
    for number, series in enumerate(found):
        color = COLORS[number % len(COLORS)]
        _draw(speed, share, series, color, _label(series, engines))
        for processes, percent in diamonds[number]:
            share.plot(processes, percent, "D", color=color, markerfacecolor="white", markersize=6)
    share.axhline(100, color=INK, linewidth=0.7, linestyle=":")
    share.set_ylim(0, max(110.0, share.get_ylim()[1]))
    speed.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    save(figure, path)


def _whiskers(found: Sequence[ScalingSeries]) -> str:
    known = any(_interval(row) for series in found for row in series.rows)
    return "; whiskers: 95 % intervals by the repeats" * known


def _prepare(axes: Axes, ranks: Sequence[int], label: str) -> None:
    plain(axes, grid="y")
    axes.set_xlabel("ranks", fontsize=9)
    axes.set_ylabel(label, fontsize=9)
    axes.set_xticks(ranks)


def _draw(speed: Axes, share: Axes, series: ScalingSeries, color: str, label: str) -> None:
    rows = sorted(series.rows, key=lambda row: row.processes)
    ranks, least = [row.processes for row in rows], series.least
    style: dict[str, Any] = {
        "color": color,
        "linestyle": STYLES[series.kind],
        "marker": MARKERS[series.kind],
        "linewidth": 1.4,
        "markersize": 4,
    }
    speeds = [CurvePoint(row.processes, rate_of(row), _interval(row), doubt_sign(row)) for row in rows]
    draw_curve(speed, speeds, label=label, **style)
    speed.plot(ranks, [rate_of(least) * n / least.processes for n in ranks], ":", color=color, linewidth=0.8)
    ratios = [(row.processes, series.efficiency_of(row)) for row in rows]
    shares = [CurvePoint(ranks, 100 * ratio.value, ratio.ends(100), ratio.sign) for ranks, ratio in ratios]
    draw_curve(share, shares, **style)


def _interval(row: TrainingRow) -> Whisker | None:
    return mean_interval(row.rate) if row.rate else None


def _published(section: TrainingSection, series: ScalingSeries) -> list[tuple[int, float]]:
    """Return ranks and published efficiency, which is of weak scaling."""
    marks = [(row.processes, section.beside.mark_of(row, WEAK_SCALING_PERCENT)) for row in series.rows]
    return [(ranks, mark) for ranks, mark in marks if mark is not None and series.kind == "weak"]


def _label(series: ScalingSeries, engines: Mapping[str, str]) -> str:
    row = series.least
    batch = (
        f"batch {row.comparison_key['batch']} a rank" if series.kind == "weak" else f"global batch {row.batch.global_}"
    )
    return f"{series.kind}: {row.model} {row.method} on {row.hardware}, {engines[row.id]}, {batch}"
