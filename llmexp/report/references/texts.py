"""The views as text: for a terminal, as Markdown, CSV and LaTeX, and in files by table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from llmexp.record.reading import as_cell, plain
from llmexp.record.redact import redact, redact_all
from llmexp.record.writing import write_atomically
from llmexp.report.latex import PREAMBLE, float_of
from llmexp.report.references.view import View
from llmexp.report.screen import console, print_table, write
from llmexp.report.text import table_lines

MISSING_SHOWN = "llmexp report {} --missing prints the commands that fill the cells without a run"


def print_views(views: Sequence[View], reference: str, file: TextIO | None = None) -> None:
    """Print each table with its legend, and how the cells without a run are filled; `reference` is its name."""
    screen = console(file)
    for view in views:
        print_table(view.table, screen)
    if any(view.missing for view in views):
        write(screen, f"\n{MISSING_SHOWN.format(reference)}")


def views_markdown(views: Sequence[View]) -> str:
    """Return the tables with their legends as Markdown."""
    lines = [line for view in views for line in table_lines(view.table)]
    return redact(plain("\n".join(lines))).strip() + "\n"


def views_csv(views: Sequence[View]) -> str:
    """Return a line for each cell, in SI units and bytes; tables of other kinds have the columns that they print."""
    records = [record for view in views for record in view.records]
    header = list(dict.fromkeys(name for record in records for name in record))
    rows = redact_all([[as_cell(record.get(name)) for name in header] for record in records])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def views_latex(views: Sequence[View]) -> str:
    """Return a LaTeX fragment with a table for each view."""
    tables = [float_of(view.table) for view in views]
    return redact(plain("\n\n".join([PREAMBLE, *tables]))).rstrip() + "\n"


TEXTS: dict[str, Callable[[Sequence[View]], str]] = {
    "markdown": views_markdown,
    "csv": views_csv,
    "latex": views_latex,
}


def publish_views(views: Sequence[View], folder: Path) -> list[Path]:
    """Write <folder>/<table>.md and .csv, each with all views of its table, and return their paths."""
    written = []
    for name in dict.fromkeys(view.name for view in views):
        own = [view for view in views if view.name == name]
        for suffix, text in ((".md", views_markdown(own)), (".csv", views_csv(own))):
            written.append(folder / f"{name}{suffix}")
            write_atomically(written[-1], text)
    return written


def missing_lines(views: Sequence[View]) -> list[str]:
    """Return the commands that fill the cells without a run, each once, under the title of its table."""
    lines: list[str] = []
    for view in views:
        new = [command for command in view.missing if command not in lines]
        lines += [f"# {view.table.title}", *new] if new else []
    return lines
