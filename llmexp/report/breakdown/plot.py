"""Where the time of a step went as a picture: a bar for each phase of each run, its parts side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.report.breakdown.parts import (
    BETWEEN,
    COMMUNICATION,
    COPIES,
    IDLE,
    LAST,
    ORDER,
    OUTSIDE,
    RECOMPUTED,
    TOTAL,
    Profiled,
    parts_ms,
)
from llmexp.report.picture import INK, new_figure, plain, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What is no module has a color of its own in every picture.
FIXED = {COMMUNICATION: "#d98089", COPIES: "#d9a441", IDLE: "#e4e4e4", OUTSIDE: "#9aa5ad", RECOMPUTED: "#b3aa9c"}
# A letter takes about this share of the axis.
LETTER = 0.0075


def draw_breakdowns(runs: Sequence[Profiled], title: str, path: Path) -> None:
    """Draw the phases of each run as bars of milliseconds; a part that is wide enough bears its share."""
    found = [(run, parts_ms(run.breakdown)) for run in runs]
    bars = [
        (run, phase, [(part[1], value) for part, value in times.items() if part[0] == phase and part[1] != TOTAL])
        for run, times in found
        for phase in dict.fromkeys(part[0] for part in times if part[0] != BETWEEN)
    ]
    widest = max((sum(value for _, value in parts) for _, _, parts in bars), default=0.0)
    names = {name for _, _, parts in bars for name, _ in parts}
    labels = [name for name in (*ORDER, *sorted(names - {*ORDER, *LAST}), *LAST) if name in names]
    figure = new_figure(11, 1.6 + 0.3 * len(bars), f"where the time of a profiled step went\n{title}")
    axes = figure.subplots()
    plain(axes, grid="x")
    colors = colors_of(labels)
    for row, (_, _, parts) in enumerate(bars):
        lefts = list(accumulate((value for _, value in parts), initial=0.0))
        spans = [(left, value) for (_, value), left in zip(parts, lefts, strict=False)]
        shades = [colors[name] for name, _ in parts]
        axes.broken_barh(spans, (row - 0.36, 0.72), facecolors=shades, edgecolors="white", linewidth=0.4)
        for (name, value), left in zip(parts, lefts, strict=False):
            if value > LETTER * len(name) * widest:
                axes.text(left + value / 2, row, name, ha="center", va="center", fontsize=6, color=INK)
    axes.set_yticks(range(len(bars)), [f"{run.name}: {phase}" for run, phase, _ in bars], fontsize=8)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, 1.05 * widest or 1)
    axes.set_xlabel("ms a step and rank", fontsize=9)
    _name_colors(figure, {name: colors[name] for name in labels})
    save(figure, path)


def _name_colors(figure: Figure, colors: Mapping[str, Any]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=color, label=name) for name, color in colors.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=7, frameon=False)


def colors_of(labels: Sequence[str]) -> dict[str, Any]:
    """Return a color for each label; a module has the same one in all pictures."""
    from matplotlib import colormaps

    shades = [*colormaps["tab20"].colors, *colormaps["tab20b"].colors]  # type: ignore[attr-defined]
    places = [*ORDER, *(name for name in labels if name not in ORDER)]
    return {name: shades[places.index(name) % len(shades)] for name in labels} | FIXED
