"""Figure 5 as a picture: stacked bars in percent, forward beside backward."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.paper.printed.breakdowns import DECODER_MODULES
from llmexp.paper.training.step_times.figure5 import PHASES, Figure5, bars_of
from llmexp.report.picture import INK, new_figure, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Light enough for dark letters; neighbors in the stack differ.
COLORS = ("#8fb3d9", "#f2b880", "#a3cf9f", "#e59a9a", "#c3aed6", "#c9b39c", "#f0d879", "#b5bdc4")
# A share that is smaller than this has no room for its number.
LEAST_LABELED = 3.2


def draw_figure5(found: Figure5, path: Path) -> None:
    """Draw the figure with the paper's bars, whose edges are dashed."""
    title = f"shares of the modules of a decoder layer, as in figure 5 of the paper\n{found.where}"
    if found.unlike:
        title += f"\nnot the paper's runs: {', '.join(found.unlike)}"
    figure = new_figure(9.5, 5.2, title)
    panels = figure.subplots(1, len(PHASES), sharey=True)
    for axes, phase in zip(panels, PHASES, strict=True):
        _draw(axes, found, phase)
    panels[0].set_ylabel("share of these modules' computation (%)", fontsize=9)
    handles: list[Any] = [
        panels[0].bar(0, 0, color=color, label=name) for name, color in zip(DECODER_MODULES, COLORS, strict=True)
    ]
    figure.legend(handles=handles[::-1], loc="outside right center", fontsize=8, frameon=False)
    save(figure, path)


def _draw(axes: Axes, found: Figure5, phase: str) -> None:
    plain(axes, grid="y")
    bars = bars_of(found, phase)
    for place, bar in enumerate(bars):
        percents = [bar.percent.get(module, 0.0) for module in DECODER_MODULES]
        for percent, below, color in zip(percents, accumulate(percents, initial=0.0), COLORS, strict=False):
            edge = {"edgecolor": INK, "linewidth": 0.8, "linestyle": "--"} if bar.is_paper else {"edgecolor": "white"}
            axes.bar(place, percent, bottom=below, width=0.7, color=color, **edge)
            if percent >= LEAST_LABELED:
                axes.text(place, below + percent / 2, f"{percent:.1f}", ha="center", va="center", fontsize=7, color=INK)
    axes.set_xticks(range(len(bars)), [bar.name.replace(", ", "\n").replace(": ", ":\n") for bar in bars], fontsize=8)
    axes.set_ylim(0, 100)
    axes.set_title(phase + (", what is recomputed left out" if phase == PHASES[-1] else ""), fontsize=9)
