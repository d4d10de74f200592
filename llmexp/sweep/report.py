"""What a command reports at its end: its own runs on the terminal, all runs of the sweep's folder in files and in MLflow."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.record.folder import RunFolder, find_runs, write_atomically
from llmexp.schema import TrackingConfig

if TYPE_CHECKING:
    from llmexp.report.table import Report


def report(folders: Sequence[RunFolder], tracking: TrackingConfig) -> None:
    """Print the table of these runs; leave that of the whole folder, these first, beside them as Markdown, CSV and PNG, and in the tracker.

    What is as it should be already is neither drawn nor written again.
    """
    from llmexp.report.table import build_report
    from llmexp.report.terminal import print_report
    from llmexp.report.text import comma_separated, markdown

    table, root = build_report(folders), folders[0].path.parent
    print_report(table)
    if others := _others(folders):
        table = table.joined(build_report(others))
        print(f"The report in {root} is of all {len(folders) + len(others)} runs there")
    texts = {root / "report.md": markdown(table), root / "report.csv": comma_separated(table)}
    _leave(table, texts, root / "report.png", tracking)


def _leave(table: Report, texts: Mapping[Path, str], picture: Path, tracking: TrackingConfig) -> None:
    """Write, draw and copy to the tracker what is not there."""
    from llmexp.report.plots import can_draw

    root, digest = picture.parent, hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:16]
    tracked = tracking.name != "mlflow"
    if not tracked:
        from llmexp.record.mlflow import has_report, record_report

        tracked = has_report(root.name, digest, tracking, root.parent)
    stands = all(_text(path) == text for path, text in texts.items()) and (picture.exists() or not can_draw())
    left = [] if stands and tracked else _written(table, texts, picture)
    if not tracked:
        tracked = record_report(root.name, left, digest, tracking, root.parent)
    if tracked and tracking.name == "mlflow":
        print("Open the results in MLflow: llmexp ui (in a checkout: make ui)")


def _written(table: Report, texts: Mapping[Path, str], picture: Path) -> list[Path]:
    """Draw the pictures, then write the texts, by which it is known that the pictures are theirs; returns all that is there then."""
    from llmexp.report.plots import can_draw, draw_report

    drawn = draw_report(table, picture) if can_draw() else []
    if not drawn:
        print(
            "no pictures: matplotlib is not installed here; where it is, llmexp report --figure FILE draws them from the folders"
        )
    for path, text in texts.items():
        write_atomically(path, text)
    return [*texts, *drawn]


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _others(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """The other runs of the sweep, whoever made them, whenever, and however they stand."""
    own = {folder.path.name for folder in folders}
    return [run for run in find_runs(folders[0].path.parent) if run.path.name not in own]
