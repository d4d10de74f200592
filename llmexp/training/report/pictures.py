"""The pictures of runs that trained, beside the bars of their table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.report.breakdown.plot import draw_breakdowns
from llmexp.training.report.loss_plot import draw_losses
from llmexp.training.report.paper_tables.figure5_plot import draw_figure5
from llmexp.training.report.scaling_plot import draw_scaling

if TYPE_CHECKING:
    from llmexp.training.report.section import TrainingSection


def draw_pictures(section: TrainingSection, path: Path) -> list[Path]:
    """Write the pictures that the section's runs have data for, and return their paths.

    <name>_loss.png is for runs with a token budget, <name>_scaling.png for series over ranks, <name>_modules.png for
    runs that were profiled, and <name>_figure5.png for those that answer the paper's figure 5.
    """
    written = []
    if section.converged:
        written.append(_beside(path, "loss"))
        draw_losses(list(section.converged.values()), section.title, written[-1])
    if section.series:
        written.append(_beside(path, "scaling"))
        draw_scaling(section.series, section.title, written[-1])
    if section.profiled:
        written.append(_beside(path, "modules"))
        draw_breakdowns(section.profiled, section.title, written[-1])
    for number, found in enumerate(section.figures5):
        written.append(_beside(path, f"figure5_{number + 1}" if number else "figure5"))
        draw_figure5(found, written[-1])
    return written


def _beside(path: Path, what: str) -> Path:
    return path.with_name(f"{path.stem}_{what}{path.suffix}")
