"""Lines and tables on a terminal, as wide as it is; what they are of is not known here, so that little is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from llmexp.record.reading import plain
from llmexp.report.columns import Column, ReportTable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 120
WIDEST_TABLE = 100


def print_table(table: ReportTable, screen: Console, *, explain: bool = True) -> None:
    """Print a further table with its title and legend; without `explain` headings are not explained."""
    write(screen, f"\n{table.title}")
    shown, left_out = fitting(list(table.columns), screen)
    screen.print(as_table(shown))
    for line in table.legend:
        if explain or line not in table.explained:
            write(screen, line, "dim")
    name_left_out(screen, left_out, "in Markdown")


def name_left_out(screen: Console, headers: Sequence[str], elsewhere: str) -> None:
    """Say which columns had no room, and where they are."""
    if headers:
        named = "; ".join(header.replace("\u00a0", " ") for header in headers)
        hidden = "columns hidden" if len(headers) > 1 else "column hidden"
        write(screen, f"{hidden} (terminal too narrow; shown {elsewhere}): {named}", "dim")


def console(file: TextIO | None = None) -> Console:
    """Return a rich console as wide as the terminal.

    Its width is fixed where there is no terminal and COLUMNS is not set.
    """
    from rich.console import Console

    target = file or sys.stdout
    has_width = target.isatty() or "COLUMNS" in os.environ
    return Console(file=target, width=None if has_width else WIDTH_WITHOUT_TERMINAL, highlight=False)


def write(screen: Console, line: str, style: str | None = None) -> None:
    """Print a line without markup, unbroken so that it can be copied, and without what the terminal would obey."""
    screen.print(plain(line), style=style, markup=False, soft_wrap=True)


def as_table(shown: Sequence[Column]) -> Table:
    """Turn columns into a rich table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in shown:
        table.add_column(
            column.header.replace(" ", "\n"),
            justify="left" if column.left else "right",
            vertical="bottom",
            overflow="fold",
            max_width=column.widest,
        )
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*(Text(cell) for cell in cells))
    return table


def fitting(found: list[Column], screen: Console) -> tuple[list[Column], list[str]]:
    """Return the columns that fit the screen, and the headings of those that do not."""
    shown, left_out = list(found), []
    width = min(screen.width, WIDEST_TABLE)
    unlimited = screen.options.update(max_width=10_000)
    while screen.measure(as_table(shown), options=unlimited).maximum > width and any(
        column.dispensable for column in shown
    ):
        first = min((column for column in shown if column.dispensable), key=lambda column: column.dispensable)
        shown.remove(first)
        left_out.append(first.header)
    return shown, left_out
