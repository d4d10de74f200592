"""What a command reports at its end: its own runs on the terminal, all runs of the sweep's folder in files and in MLflow."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.record.folder import RunFolder, find_runs, write_atomically
from llmexp.schema import TrackingConfig


def report(folders: Sequence[RunFolder], tracking: TrackingConfig) -> None:
    """Print the table of these runs; leave that of the whole folder, these first, beside them as Markdown, CSV and PNG."""
    from llmexp.report.plots import can_draw, draw_report
    from llmexp.report.table import build_report
    from llmexp.report.terminal import print_report
    from llmexp.report.text import comma_separated, markdown

    table, root = build_report(folders), folders[0].path.parent
    print_report(table)
    if others := _others(folders):
        table = table.joined(build_report(others))
        print(f"The report in {root} is of all {len(folders) + len(others)} runs there")
    write_atomically(root / "report.md", markdown(table))
    write_atomically(root / "report.csv", comma_separated(table))
    left = [root / "report.md", root / "report.csv"]
    if can_draw():
        left += draw_report(table, root / "report.png")
    else:
        print("no pictures: matplotlib is not installed here; where it is, llmexp report --figure FILE draws them from the folders")
    if tracking.name == "mlflow":
        from llmexp.record.mlflow import record_report

        if record_report(root.name, left, tracking, root.parent):
            print("Open the results in MLflow: llmexp ui (in a checkout: make ui)")


def _others(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """The other runs of the sweep, whoever made them, whenever, and however they stand."""
    own = {folder.path.name for folder in folders}
    return [run for run in find_runs(folders[0].path.parent) if run.path.name not in own]
