"""Why rows have no figures, or ones that cannot be relied on, by numbers that the table's cells refer to."""

from __future__ import annotations

from llmexp.report.row import OOM, Row
from llmexp.report.scaling_series import paper_of
from llmexp.report.table import Report

NAMED_NEIGHBOURS = 4


def notes_of(report: Report) -> list[str]:
    """Why rows have no figures or doubtful ones, and what is doubtful in the paper's; the table refers to them by number from 1."""
    found = (note for row in report.rows for note in (ending_note(row), row.doubt, beside_note(row), *(say(row) for say in _OF_PAPER)))
    return list(dict.fromkeys(filter(None, found)))


def ending_note(row: Row) -> str:
    """How the run ended, where there are no figures and it was not for memory."""
    return "" if row.state == OOM else row.reason


def beside_note(row: Row) -> str:
    """Which runs of the sweep were measured at the same time on the same machine."""
    names = row.stability.beside if row.stability else []
    if not names:
        return ""
    more = f" and {len(names) - NAMED_NEIGHBOURS} more" if len(names) > NAMED_NEIGHBOURS else ""
    runs = f"{len(names)} other run{'s' * (len(names) > 1)} ({', '.join(names[:NAMED_NEIGHBOURS])}{more})"
    return f"measured beside {runs} on the same machine: they share power, fans and the host"


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


_OF_PAPER = (paper_note, unlike_note, scaling_note)
