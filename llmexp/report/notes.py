"""Why rows have no figures, or ones that cannot be relied on, by numbers that the table's cells refer to."""

from __future__ import annotations

from llmexp.report.row import OOM, Row
from llmexp.report.scaling_series import paper_of
from llmexp.report.table import Report


def notes_of(report: Report) -> list[str]:
    """Why rows have no figures or doubtful ones, and what is doubtful in the paper's; the table refers to them by number from 1."""
    found = [note for row in report.rows for note in (ending_note(row), row.doubt, paper_note(row), unlike_note(row), scaling_note(row)) if note]
    return list(dict.fromkeys(found))


def ending_note(row: Row) -> str:
    """How the run ended, where there are no figures and it was not for memory."""
    return "" if row.state == OOM else row.reason


def paper_note(row: Row) -> str:
    """What is doubtful in the paper's cell, or odd."""
    return f"paper, table {row.paper.table}: {row.paper.remark}" if row.paper and row.paper.remark else ""


def unlike_note(row: Row) -> str:
    """Why there is no ratio to the paper's cell, where a run was measured."""
    compared = row.paper and not row.paper.oom and row.metric("tokens_per_s")
    return f"no ratio: the paper's cell is not of {row.unlike_paper}" if compared and row.unlike_paper else ""


def scaling_note(row: Row) -> str:
    """What the paper says of its own scaling figure."""
    paper = paper_of(row)
    return f"paper, figure 4: {paper.note}" if paper and paper.note else ""


def mark(note: str, notes: list[str]) -> str:
    """The number of a note, for the cell that it belongs to."""
    return f" ({notes.index(note) + 1})" if note else ""
