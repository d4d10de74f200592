"""Views as the page's sections: coverage in words, bars beside the published ones, the table, the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmexp.report.columns import ReportTable
from llmexp.report.page.document import document, shown_table
from llmexp.report.references.view import View
from llmexp.report.row import Row


def views_page(views: Sequence[View], unreadable: Sequence[str], title: str) -> str:
    """Return the views as one HTML document that loads nothing; raises RecordError without jinja2."""
    return document([_section(view) for view in views], title, unreadable)


def _section(view: View) -> dict[str, Any]:
    title = view.table.title
    commands = [_commands("The command of each run", view.rows), _missing(view.missing)]
    groups: list[list[ReportTable | None]] = [[view.table], [], [], list(commands)]
    return {
        "title": title[:1].upper() + title[1:],
        "asked": "",
        "command": "",
        "answers": list(view.answers) or [title],
        "charts": [chart.values for chart in view.charts],
        "matrices": [],
        "pictures": [],
        "setup": None,
        "provenance": [],  # the table's legend has it
        "groups": [list(map(shown_table, filter(None, group))) for group in groups],
    }


def _commands(title: str, rows: Sequence[Row]) -> ReportTable | None:
    named = [" ".join(row.plan.name_fields.values()) for row in rows]
    cells = [[name, row.command] for name, row in zip(named, rows, strict=True)]
    return ReportTable.of_rows(title, ["run", "command"], cells, copied="command") if rows else None


def _missing(commands: Sequence[str]) -> ReportTable | None:
    cells = [[command] for command in commands]
    title = "Commands that fill the cells without a run"
    return ReportTable.of_rows(title, ["command"], cells, copied="command") if commands else None
