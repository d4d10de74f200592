"""Numbered notes to a table's cells: why rows have no figures, or figures that cannot be relied on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from llmexp.record.duration import duration
from llmexp.record.result import seconds_between
from llmexp.report.row import DOUBTS, OOM, Row

NAMED_NEIGHBOURS = 4
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w.]*\w)")


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


def folded(notes: Iterable[str]) -> dict[str, str]:
    """Return for each note the one that is shown: doubts that differ in numbers alone are one, with the least to most.

    Other notes stay as they are: exit codes 1 and 137 are no range.
    """
    alike: dict[str, list[str]] = {}
    for note in notes:
        is_doubt = note.startswith(tuple(f"{words}: " for words in DOUBTS.values()))
        alike.setdefault(_NUMBER.sub("#", note) if is_doubt else note, []).append(note)
    return {note: _with_ranges(several) for several in alike.values() for note in several}


def _with_ranges(notes: list[str]) -> str:
    ranges = iter([_range(numbers) for numbers in zip(*map(_NUMBER.findall, notes), strict=True)])
    return _NUMBER.sub(lambda _: next(ranges), notes[0]) if len(notes) > 1 else notes[0]


def _range(numbers: Iterable[str]) -> str:
    by_size = sorted(numbers, key=lambda number: float(number.replace(",", "")))
    return by_size[0] if by_size[0] == by_size[-1] else f"{by_size[0]} to {by_size[-1]}"


def mark(note: str, numbers: Mapping[str, int]) -> str:
    """Return the number of a note for the cell that it belongs to."""
    return f" ({numbers[note]})" if note else ""
