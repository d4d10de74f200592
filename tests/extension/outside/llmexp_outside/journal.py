"""A tracker: a page of text for each run."""

from __future__ import annotations

from pathlib import Path

from llmexp.extend import RunTracker, TrackedRun


class Journal(RunTracker):
    name = "journal"

    def write(self, run: TrackedRun, folder: Path) -> None:
        figures = [f"{name} {value:g}" for name, value in run.metrics.items()]
        (folder / "page.txt").write_text("\n".join([f"{run.name}: {run.status}", *figures]) + "\n")


JOURNAL = Journal()
