"""The report as Markdown for people and as CSV for programs."""

from __future__ import annotations

import csv
import io

from llmexp.record.reading import as_cell, plain
from llmexp.record.redact import redact, redact_all
from llmexp.report.columns import Detail
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
    shown = section.columns
    headers = [column.header for column in shown] + ["command"]
    rules = ["---" if column.left else "---:" for column in shown] + ["---"]
    body = [
        [*cells, f"`{anywhere(row.command)}`"]
        for row, *cells in zip(section.rows, *(column.cells for column in shown), strict=True)
    ]
    lines = [f"## {section.title}", "", *(_line(cells) for cells in (headers, rules, *body)), ""]
    lines += [f"- {line}" for line in (*section.legend, *provenance(section.rows))]
    lines += ["", *(f"({number}) {note}  " for number, note in enumerate(section.notes, 1))]
    return [*lines, *(line for detail in section.details for line in detail_lines(detail))]


def detail_lines(detail: Detail) -> list[str]:
    """Return a further table as lines of Markdown, with its title and legend."""
    headers = [column.header for column in detail.columns]
    rules = ["---" if column.left else "---:" for column in detail.columns]
    body = [list(cells) for cells in zip(*(column.cells for column in detail.columns), strict=True)]
    lines = [_line(cells) for cells in (headers, rules, *body)]
    return ["", f"### {detail.title}", "", *lines, "", *(f"- {line}" for line in detail.legend)]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
