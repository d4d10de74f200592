"""Numbered notes to a table's cells: why rows have no figures, or figures that cannot be relied on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from llmexp.record.duration import duration
from llmexp.record.result import seconds_between
from llmexp.report.row import DOUBTS, OOM, Row

NAMED_NEIGHBORS = 4
POWER = "power: "
# A cap that holds the clock down for less of the window costs less than runs scatter.
CAPPED_SHARE = 0.1
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w.]*\w)")


def ending_note(row: Row) -> str:
    """Say how the run ended if it has no figures, unless it ran out of memory."""
    return "" if row.state == OOM else row.reason


def beside_note(row: Row) -> str:
    """Name the runs of the sweep that were measured at the same time on the same machine."""
    names = row.stability.concurrent_runs if row.stability else []
    if not names:
        return ""
    more = f" and {len(names) - NAMED_NEIGHBORS} more" if len(names) > NAMED_NEIGHBORS else ""
    runs = f"{len(names)} other run{'s' * (len(names) > 1)} ({', '.join(names[:NAMED_NEIGHBORS])}{more})"
    return f"measured beside {runs} on the same machine: they share power, fans and the host"


def power_note(row: Row) -> str:
    """Say that the power cap held a GPU's clock down, and at what clock it ran: no code changes that by itself."""
    capped = [
        clock
        for clock in (row.stability.sm_clocks if row.stability else [])
        if (clock.share_at_power_cap or 0) > CAPPED_SHARE
    ]
    if not capped:
        return ""
    slowest = min(capped, key=lambda clock: clock.mean_megahertz)
    cap = f" of {slowest.power_cap_watts:.0f} W" if slowest.power_cap_watts else ""
    card = f" of {slowest.card_megahertz:,.0f}" if slowest.card_megahertz else ""
    others = f", the slowest of {len(capped)} GPUs" * (len(capped) > 1)
    return (
        f"{POWER}{100 * (slowest.share_at_power_cap or 0):.0f} % of the window at the card's power cap{cap}; "
        f"its clock was {slowest.mean_megahertz:,.0f}{card} MHz on average{others}"
    )


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
    """Return for each note the one that is shown: doubts or clocks that differ in numbers alone are one with a range.

    Other notes stay as they are: exit codes 1 and 137 are no range.
    """
    alike: dict[str, list[str]] = {}
    for note in notes:
        is_alike = note.startswith((*(f"{words}: " for words in DOUBTS.values()), POWER))
        alike.setdefault(_NUMBER.sub("#", note) if is_alike else note, []).append(note)
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
