"""The report at a command's end: its own runs on the terminal, all runs of the sweep's folder in files and MLflow."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.writing import write_atomically
from llmexp.schema import TrackingConfig

if TYPE_CHECKING:
    from llmexp.report.table import Report


def report(folders: Sequence[RunFolder], tracking: TrackingConfig) -> None:
    """Print the table of these runs, and write that of the whole folder as Markdown, CSV, PNG, HTML and to the tracker.

    These runs come first in the files. Files that are up to date are neither drawn nor written again.
    """
    from llmexp.report.table import build_report
    from llmexp.report.terminal import print_report

    table, root = build_report(folders), folders[0].path.parent
    print_report(table)
    if others := _others(folders):
        table = table.joined(build_report(others))
        print(f"The report in {root} is of all {len(folders) + len(others)} runs there")
    if _leave(table, root, tracking):
        print("Open the results in MLflow: llmexp ui (in a checkout: make ui)")


def leave_report(sweep: Path, tracking: TrackingConfig) -> None:
    """Write the report of a sweep's folder there and to the tracker, where it is missing or out of date."""
    from llmexp.report.table import build_report

    _leave(build_report(find_runs(sweep)), sweep, tracking)


def print_so_far(folders: Sequence[RunFolder]) -> None:
    """Print the table of those runs of an interrupted sweep that have an answer."""
    from llmexp.report.table import build_report
    from llmexp.report.terminal import print_report

    if folders:
        print_report(build_report(folders))


def _leave(table: Report, root: Path, tracking: TrackingConfig) -> bool:
    """Write, draw and copy to MLflow whatever is missing or out of date; tell whether MLflow has it now."""
    from llmexp.report.best import best_figures, best_words, headlines
    from llmexp.report.page.document import can_make_pages
    from llmexp.report.plots import can_draw
    from llmexp.report.text import comma_separated, markdown

    picture, texts = (
        root / "report.png",
        {root / "report.md": markdown(table), root / "report.csv": comma_separated(table)},
    )
    made = {picture: can_draw(), picture.with_suffix(".html"): can_make_pages()}
    tracked = tracking.name != "mlflow"
    if not tracked:
        from llmexp.record.mlflow import Overview, has_report, record_report

        overview = Overview(headlines(table.rows), best_figures(table.rows), tuple(best_words(table.rows)))
        content = [*texts.values(), *(path.name for path, can in made.items() if can), repr(overview)]
        digest = hashlib.sha256("".join(content).encode()).hexdigest()[:16]
        tracked = has_report(root.name, digest, tracking, root.parent)
    stands = all(_text(path) == text for path, text in texts.items()) and all(
        path.exists() or not can for path, can in made.items()
    )
    left = [] if stands and tracked else _written(table, texts, picture)
    if not tracked:
        tracked = record_report(left, digest, overview, tracking)
    return tracked and tracking.name == "mlflow"


def _written(table: Report, texts: Mapping[Path, str], picture: Path) -> list[Path]:
    """Draw the pictures, then write the texts, and return all files.

    The texts come last: up-to-date texts show that the pictures belong to them.
    """
    from llmexp.report.plots import can_draw, draw_report

    drawn = draw_report(table, picture) if can_draw() else []
    if not drawn:
        print(
            "no pictures: matplotlib is not installed; where it is, llmexp report --figure FILE draws them from the "
            "folders"
        )
    pages = _pages(table, picture.with_suffix(".html"))
    for path, text in texts.items():
        write_atomically(path, text)
    return [*texts, *pages, *drawn]


def _pages(table: Report, path: Path) -> list[Path]:
    """Write the report as one HTML page where jinja2 is installed."""
    from llmexp.report.page.document import can_make_pages, page

    if not can_make_pages():
        return []
    write_atomically(path, page(table, path.parent.name))
    return [path]


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _others(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """Return the other runs of the sweep's folder, whoever made them, at any time and in any state."""
    own = {folder.path.name for folder in folders}
    return [run for run in find_runs(folders[0].path.parent) if run.path.name not in own]
