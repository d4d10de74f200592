"""Pictures that a node without matplotlib could not draw; they are drawn here from the folders that it left."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder, find_runs
from llmexp.report.plots import can_draw, draw_report, draw_run
from llmexp.report.table import build_report


def draw_missing(runs: Sequence[RunFolder]) -> None:
    """Draw the missing figures of ended runs and the missing reports of their sweeps.

    Nothing is drawn where matplotlib is missing here too.
    """
    if not can_draw():
        return
    for run in runs:
        with suppress(RecordError, OSError, ValueError):  # a folder that cannot be read is named by what reads it next
            if not run.figures.exists() and not run.figures.is_symlink() and run.result():
                draw_run(run)
    for sweep in dict.fromkeys(run.path.parent for run in runs):
        if (sweep / "report.md").exists() and not (sweep / "report.png").exists():
            draw_report(build_report(find_runs(sweep)), sweep / "report.png")
