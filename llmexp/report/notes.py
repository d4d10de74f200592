"""Numbered notes to a table's cells: why rows have no figures, or figures that cannot be relied on."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from llmexp.record.duration import duration
from llmexp.record.result import seconds_between
from llmexp.report.row import OOM, Row

NAMED_NEIGHBOURS = 4


def ending_note(row: Row) -> str:
    """Say how the run ended if it has no figures, unless it ran out of memory."""
    return "" if row.state == OOM else row.reason


def beside_note(row: Row) -> str:
    """Name the runs of the sweep that were measured at the same time on the same machine."""
    names = row.stability.beside if row.stability else []
    if not names:
        return ""
    more = f" and {len(names) - NAMED_NEIGHBOURS} more" if len(names) > NAMED_NEIGHBOURS else ""
    runs = f"{len(names)} other run{'s' * (len(names) > 1)} ({', '.join(names[:NAMED_NEIGHBOURS])}{more})"
    return f"measured beside {runs} on the same machine: they share power, fans and the host"


def interruption_note(row: Row) -> str:
    """Say how long a sweep lay still between two repeats of a run that it went on with."""
    turns = row.result.turns if row.result and row.rate else []
    gaps = [
        f"{duration(seconds_between(one.ended_at, other.began_at))} between repeats {one.repeat + 1} and "
        f"{other.repeat + 1}"
        for one, other in pairwise(turns)
        if one.driver != other.driver
    ]
    return f"its sweep was interrupted and went on later: {', '.join(gaps)}" if gaps else ""


def mark(note: str, numbers: Mapping[str, int]) -> str:
    """Return the number of a note for the cell that it belongs to."""
    return f" ({numbers[note]})" if note else ""
