"""All pictures of a report: its bars, and beside them, under names made from theirs, what only some reports have."""

from __future__ import annotations

from pathlib import Path

from llmexp.report.loss_plot import draw_losses
from llmexp.report.plots import draw
from llmexp.report.scaling_plot import draw_scaling
from llmexp.report.table import Report


def draw_report(report: Report, path: Path) -> list[Path]:
    """Write <name>.png, <name>_loss.png of runs with a token budget, <name>_scaling.png of runs on several numbers of ranks; return what was written.

    SVG or PDF instead, by the suffix.
    """
    draw(report, path)
    written = [path]
    if report.converged:
        written.append(_beside(path, "loss"))
        draw_losses(list(report.converged.values()), report.title, written[-1])
    if report.series:
        written.append(_beside(path, "scaling"))
        draw_scaling(report.series, report.title, written[-1])
    return written


def _beside(path: Path, what: str) -> Path:
    return path.with_name(f"{path.stem}_{what}{path.suffix}")
