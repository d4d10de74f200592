"""The pictures of runs that trained, beside the bars of their table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.report.breakdown.plot import draw_breakdowns
from llmexp.report.picture import named_beside
from llmexp.training.report.loss_plot import draw_losses
from llmexp.training.report.scaling_plot import draw_scaling

if TYPE_CHECKING:
    from llmexp.training.report.section import TrainingSection


def draw_pictures(section: TrainingSection, path: Path) -> list[Path]:
    """Write the pictures that the section's runs have data for, and return their paths.

    <name>_loss.png is for runs with a token budget, <name>_scaling.png for series over ranks, <name>_modules.png for
    runs that were profiled; published references add theirs.
    """
    written = []
    if section.converged:
        written.append(named_beside(path, "loss"))
        draw_losses(list(section.converged.values()), section.title, written[-1])
    if section.series:
        written.append(named_beside(path, "scaling"))
        draw_scaling(section, written[-1])
    if section.profiled:
        written.append(named_beside(path, "modules"))
        draw_breakdowns(section.profiled, section.title, written[-1])
    return [*written, *section.beside.draw(path)]
