"""A plot of the loss of every run with a token budget, over tokens and over time."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from llmexp.report.coinciding import coinciding
from llmexp.report.picture import COLORS, INK, new_figure, plain, save
from llmexp.report.signs import doubt_sign
from llmexp.training.convergence import SMOOTHED_SHARE
from llmexp.training.report.converged import DIVERGED, Converged

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = ("-", "--", ":", "-.")
# The plot ends this much above the baseline's highest loss and cuts off the rest of a run that diverges.
ROOM = 1.1
# Of the small title over half of the picture.
TITLE_CHARACTERS = 80


def draw_losses(found: Sequence[Converged], title: str, path: Path) -> None:
    """Plot the smoothed losses, a line a run, with the baseline's final loss as the line to reach."""
    figure = new_figure(
        10.5,
        4.6 + 0.16 * (len(found) // 3),
        f"{title}\nloss, mean over the last {SMOOTHED_SHARE:.0%} of the tokens up to each step",
    )
    panels = figure.subplots(1, 2, sharey=True)
    for axes, label in zip(panels, ("tokens trained on", "seconds at the measured step time"), strict=True):
        plain(axes, grid="y")
        axes.set_xlabel(label, fontsize=9)
    for number, one in enumerate(found):
        style = {
            "color": COLORS[number % len(COLORS)],
            "linestyle": STYLES[number // len(COLORS) % len(STYLES)],
            "linewidth": 1.4,
        }
        panels[0].plot(one.curve.tokens, one.curve.smoothed, label=_label(one), **style)
        panels[1].plot(one.curve.seconds, one.curve.smoothed, **style)
    panels[0].set_ylabel("loss", fontsize=9)
    _cut(panels[0], found)
    panels[0].set_title("\n".join(_same(found)), loc="left", fontsize=8, color=INK)
    for loss in {one.baseline.final_loss for one in found if isfinite(one.baseline.final_loss)}:
        for axes in panels:
            axes.axhline(loss, color=INK, linewidth=0.7, linestyle=(0, (1, 2)), zorder=0)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    save(figure, path)


def _same(found: Sequence[Converged]) -> list[str]:
    """Name the lines over tokens that hide each other, because their methods do the same training."""
    groups = coinciding([(one.curve.tokens, one.curve.smoothed) for one in found])
    named = [", ".join(found[place].label for place in group) for group in groups if len(group) > 1]
    return [line for names in named for line in wrap(f"coincide: {names}", TITLE_CHARACTERS)]


def _label(one: Converged) -> str:
    name = f"{one.label} {doubt_sign(one.row)}".rstrip()
    if one.curve.diverged_at is not None:
        return f"{name}: {DIVERGED} at step {one.curve.diverged_at}"
    return f"{name}: {one.curve.final_loss:.3f}{' (baseline, dotted)' * one.is_baseline}"


def _cut(axes: Axes, found: Sequence[Converged]) -> None:
    losses = [loss for one in found for loss in one.curve.smoothed if isfinite(loss)]
    highest = max((loss for one in found for loss in one.baseline.smoothed if isfinite(loss)), default=None)
    if highest is not None and max(losses) > ROOM * highest:
        axes.set_ylim(top=ROOM * highest)
