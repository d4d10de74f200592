"""The report on a terminal.

What is the same in every row stands above the table. Columns that do not fit the width are left out and named. What
repeats the runs stands below, with the words that all commands share written once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from llmexp.analysis.same_training import Sameness, is_another
from llmexp.report.cells import in_unit
from llmexp.report.columns import Column, Detail
from llmexp.report.compare import Comparison, Difference, Ratio, ending
from llmexp.report.repeat import repeat_lines
from llmexp.report.same_cells import part_same
from llmexp.report.section import Section
from llmexp.report.table import Report

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 120
WIDEST_TABLE = 100
_SPEEDS = {"same": "equally fast", "different": "not equally fast", "unknown": "cannot tell whether equally fast"}


def print_report(report: Report, file: TextIO | None = None) -> None:
    """Print the table, its legend and notes, and the command of each row."""
    screen, first = console(file), 1
    if not report.rows:
        write(screen, "No runs")
    for section in report.sections:
        _print_section(screen, section, first)
        first += len(section.rows)
    for reason in report.unreadable:
        write(screen, f"unreadable: {reason}")


def _print_section(screen: Console, section: Section, first: int) -> None:
    """Print a section with its rows numbered from `first`."""
    write(screen, section.title)
    numbers = Column("#", tuple(str(number) for number, _ in enumerate(section.rows, first)))
    differing, same = part_same(section.columns)
    if same:
        screen.print(same, style="dim", markup=False)
    shown, left_out = _fitting([numbers, *differing], screen)
    screen.print(as_table(shown))
    for line in section.leaders:
        write(screen, line)
    for line in section.legend:
        write(screen, line, "dim")
    _name_left_out(screen, left_out, "in Markdown and CSV")
    for number, note in enumerate(section.notes, 1):
        write(screen, f"({number}) {note}")
    for detail in section.details:
        print_detail(detail, screen)
    for line in repeat_lines([row.command for row in section.rows], first):
        write(screen, line)


def print_detail(detail: Detail, screen: Console) -> None:
    """Print a further table with its title and legend."""
    write(screen, f"\n{detail.title}")
    shown, left_out = _fitting(list(detail.columns), screen)
    screen.print(as_table(shown))
    for line in detail.legend:
        write(screen, line, "dim")
    _name_left_out(screen, left_out, "in Markdown")


def _name_left_out(screen: Console, headers: Sequence[str], elsewhere: str) -> None:
    if headers:
        named = "; ".join(header.replace("\u00a0", " ") for header in headers)
        write(screen, f"no room for: {named} ({elsewhere}, or on a wider terminal)", "dim")


def console(file: TextIO | None = None) -> Console:
    """Return a rich console as wide as the terminal.

    Its width is fixed where there is no terminal and COLUMNS is not set.
    """
    from rich.console import Console

    target = file or sys.stdout
    has_width = target.isatty() or "COLUMNS" in os.environ
    return Console(file=target, width=None if has_width else WIDTH_WITHOUT_TERMINAL, highlight=False)


def write(screen: Console, line: str, style: str | None = None) -> None:
    """Print a line as it is: without markup, and unbroken, so that it can be copied."""
    screen.print(line, style=style, markup=False, soft_wrap=True)


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


def _fitting(found: list[Column], screen: Console) -> tuple[list[Column], list[str]]:
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


def print_comparison(comparison: Comparison, file: TextIO | None = None) -> None:
    """Print both runs, what differs, whether the work was the same, and the ratios."""
    screen = console(file)
    for name, row in (("a", comparison.a), ("b", comparison.b)):
        write(screen, f"{name}: {row.folder.path.name} ({ending(row)})")
    write(
        screen,
        "\nsame work" if comparison.same_work else "\nNOT the same work:",
        None if comparison.same_work else "bold",
    )
    for title, differences in (
        ("work", comparison.work),
        ("setting", comparison.settings),
        ("environment", comparison.environment),
    ):
        if differences:
            screen.print(_difference_table(title, differences))
    if comparison.ratios:
        screen.print(_ratio_table(comparison.ratios))
        write(
            screen,
            "b/a with its 95 % interval by the repeats, where a or b has several (a single one is taken to vary as the "
            "other's do); units as in the names",
            "dim",
        )
    if comparison.training:
        write(screen, training_line(comparison.training))
    if comparison.same_work and comparison.speeds and not is_another(comparison.training):
        write(screen, f"{_SPEEDS[comparison.speeds.answer]}: {comparison.speeds.reason}")


def training_line(found: Sameness) -> str:
    """Say whether two runs did the same training."""
    said = {
        "same": "the same training: the same sequences, losses of the first steps within "
        f"{found.losses_apart or 0.0:.1e} of each other, first gradients and updates of one size",
        "different": f"NOT the same training, so that speeds do not compare: {found.reason}",
        "unknown": f"cannot tell whether the same training: {found.reason}",
    }
    return said[found.answer]


def _difference_table(title: str, differences: Sequence[Difference]) -> Table:
    keys, a, b = zip(*((d.key, d.a or "", d.b or "") for d in differences), strict=True)
    return as_table([Column(title, keys, left=True), Column("a", a, left=True), Column("b", b, left=True)])


def _ratio_table(ratios: Sequence[Ratio]) -> Table:
    return as_table(
        [
            Column("metric", tuple(ratio.name for ratio in ratios), left=True),
            Column("a", tuple(in_unit(ratio.a.mean, ratio.unit) for ratio in ratios)),
            Column("b", tuple(in_unit(ratio.b.mean, ratio.unit) for ratio in ratios)),
            Column("b/a", tuple(map(_ratio, ratios))),
            Column("better", tuple(ratio.better for ratio in ratios), left=True),
        ]
    )


def _ratio(ratio: Ratio) -> str:
    if ratio.value is None:
        return ""
    return f"{ratio.value:.3f}" + (f" ({ratio.interval[0]:.3f} to {ratio.interval[1]:.3f})" if ratio.interval else "")
