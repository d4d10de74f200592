"""Why rows have no figures, or ones that cannot be relied on, by numbers that the table's cells refer to."""

from __future__ import annotations

from llmexp.report.row import OOM, Row

NAMED_NEIGHBOURS = 4


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


def mark(note: str, notes: list[str]) -> str:
    """The number of a note, for the cell that it belongs to."""
    return f" ({notes.index(note) + 1})" if note else ""
