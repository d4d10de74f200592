"""Where runs stand, read from their folders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from llmexp.record.folder import RunFolder
from llmexp.record.index import UNREADABLE, Standing, standings

HEADERS = ("run", "state", "repeats", "measured steps", "reason")


def print_status(folders: Sequence[RunFolder]) -> None:
    """Print a line a run: how far it came, how it ended and why; then how many runs are in which state."""
    found = standings(folders)
    rows = [HEADERS, *(row(folder, standing) for folder, standing in zip(folders, found, strict=True))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for *cells, reason in rows:
        print("  ".join((*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), reason)).rstrip())
    if len(found) > 1:
        states = Counter(standing.state for standing in found).most_common()
        print(f"{len(found)} runs: {', '.join(f'{count} {state}' for state, count in states)}")


def row(folder: RunFolder, standing: Standing) -> tuple[str, ...]:
    """The run's name, state, repeats and measured steps of those planned, and reason, in one line; what cannot be read is said in the reason."""
    name = f"{folder.path.parent.name}/{folder.path.name}"
    if standing.state == UNREADABLE:
        return (name, standing.state, "", "", standing.reason)
    repeats, steps = f"{standing.repeats}/{standing.planned_repeats}", f"{standing.steps}/{standing.planned_steps}"
    return (name, standing.state, repeats, steps, " ".join(standing.reason.split()))
