"""The report on a terminal.

What is the same in every row, and what the table answers, stand above it. Columns that do not fit the width are left
out and named. What repeats the runs stands below, with the words that all commands share written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from llmexp.analysis.sameness import Sameness, is_another
from llmexp.report.cells import in_unit
from llmexp.report.columns import Column
from llmexp.report.compare import Comparison, Difference, MetricRatio, ending
from llmexp.report.repeat import repeat_lines
from llmexp.report.screen import as_table, console, fitting, name_left_out, print_table, write
from llmexp.report.section import ReportSection
from llmexp.report.table import Report

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SPEEDS = {"same": "equally fast", "different": "not equally fast", "unknown": "cannot tell whether equally fast"}


EXPLAIN = "llmexp report --explain says what each column means"


def print_report(report: Report, file: TextIO | None = None, *, explain: bool = False) -> None:
    """Print the table, its signs, its notes and the command of each row; with `explain` what each column means."""
    screen, first = console(file), 1
    if not report.rows:
        write(screen, "No runs")
    for section in report.sections:
        _print_section(screen, section, first, explain)
        first += len(section.rows)
    for reason in report.unreadable:
        write(screen, f"unreadable: {reason}")


def _print_section(screen: Console, section: ReportSection, first: int, explain: bool) -> None:
    """Print a section with its rows numbered from `first`."""
    write(screen, section.title)
    numbers = Column("#", tuple(str(number) for number, _ in enumerate(section.rows, first)))
    differing, same = part_same(section.columns)
    if same:
        screen.print(same, style="dim", markup=False)
    for line in section.leaders:
        write(screen, line)
    shown, left_out = fitting([numbers, *differing], screen)
    screen.print(as_table(shown))
    hidden = [] if explain else section.explained
    for line in section.legend:
        if line not in hidden:
            write(screen, line, "dim")
    if any(hidden):
        write(screen, EXPLAIN, "dim")
    name_left_out(screen, left_out, "in Markdown and CSV")
    for number, note in enumerate(section.notes, 1):
        write(screen, f"({number}) {note}")
    for table in section.tables:
        print_table(table, screen, explain=explain)
    for line in repeat_lines([row.command for row in section.rows], first):
        write(screen, line)


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
        "different": f"NOT the same training, so speeds cannot be compared: {found.reason}",
        "unknown": f"cannot tell whether the same training: {found.reason}",
    }
    return said[found.answer]


def _difference_table(title: str, differences: Sequence[Difference]) -> Table:
    keys, a, b = zip(*((d.key, d.a or "", d.b or "") for d in differences), strict=True)
    return as_table([Column(title, keys, left=True), Column("a", a, left=True), Column("b", b, left=True)])


def _ratio_table(ratios: Sequence[MetricRatio]) -> Table:
    return as_table(
        [
            Column("metric", tuple(ratio.name for ratio in ratios), left=True),
            Column("a", tuple(in_unit(ratio.a.mean, ratio.unit) for ratio in ratios)),
            Column("b", tuple(in_unit(ratio.b.mean, ratio.unit) for ratio in ratios)),
            Column("b/a", tuple(map(_ratio, ratios))),
            Column("better", tuple(ratio.better for ratio in ratios), left=True),
        ]
    )


def _ratio(ratio: MetricRatio) -> str:
    if ratio.value is None:
        return ""
    return f"{ratio.value:.3f}" + (f" ({ratio.interval[0]:.3f} to {ratio.interval[1]:.3f})" if ratio.interval else "")


def part_same(columns: Sequence[Column]) -> tuple[list[Column], str]:
    """Return the columns to show, and a line on those whose cells are all the same; empty where there are none.

    The line takes columns that identify runs and those that may be dropped; the rate and others that always stay do.
    A table of one row keeps all its columns.
    """
    same = [column for column in columns if _is_same(column)]
    said = "; ".join(f"{column.header} {column.cells[0]}".replace("\u00a0", " ") for column in same)
    return [column for column in columns if column not in same], f"same in every row: {said}" if said else ""


def _is_same(column: Column) -> bool:
    cells = set(column.cells)
    return (column.left or column.dispensable > 0) and len(column.cells) > 1 and len(cells) == 1 and cells != {""}
