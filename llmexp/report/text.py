"""The report as Markdown for people and as CSV for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from llmexp.record.reading import as_cell, plain
from llmexp.record.redact import redact, redact_all
from llmexp.report.columns import Column, ReportTable
from llmexp.report.provenance import provenance
from llmexp.report.repeat import anywhere
from llmexp.report.section import ReportSection
from llmexp.report.table import Report


def markdown(report: Report) -> str:
    """Return the report as Markdown.

    Each section has a table, whose last column repeats the run wherever its reader is, then the legend, where and when
    it was measured, and the numbered notes.
    """
    parts = [_section(section) for section in report.sections] or [["## No runs", ""]]
    lines = [line for part in parts for line in part]
    lines += [f"unreadable: {reason}  " for reason in report.unreadable]
    return redact(plain("\n".join(lines))).rstrip() + "\n"


def comma_separated(report: Report) -> str:
    """Return the report as CSV: a header and one line a run, with the columns of Section.record.

    Runs of several tasks have the columns of all of them.
    """
    records = [section.record(row) for section in report.sections for row in section.rows]
    header = list(dict.fromkeys(name for record in records for name in record))
    rows = [[as_cell(record.get(name)) for name in header] for record in records]
    together = str(rows)  # redacting each cell takes long and is seldom needed
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows if redact(together) == together else redact_all(rows))
    return text.getvalue()


def _section(section: ReportSection) -> list[str]:
    commands = Column("command", tuple(f"`{anywhere(row.command)}`" for row in section.rows), left=True)
    table = ReportTable(section.title, [*section.columns, commands])
    answers = [word for line in section.leaders for word in (line, "")]
    lines = [f"## {table.title}", "", *answers, *_grid(table), ""]
    lines += [f"- {line}" for line in (*section.legend, *provenance(section.rows))]
    lines += ["", *(f"({number}) {note}  " for number, note in enumerate(section.notes, 1))]
    return [*lines, *(line for table in section.tables for line in table_lines(table))]


def table_lines(table: ReportTable) -> list[str]:
    """Return a table as lines of Markdown, with its title and legend."""
    return ["", f"### {table.title}", "", *_grid(table), "", *(f"- {line}" for line in table.legend)]


def _grid(table: ReportTable) -> list[str]:
    rules = ["---" if column.left else "---:" for column in table.columns]
    return [_line(cells) for cells in (table.headers, rules, *table.rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
