"""Several drivers on one sweep: each does what no other is at, comes back for the rest and takes the others' results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from llmexp.launch.attempt import holder
from llmexp.record.folder import RunFolder

_LOOK_EVERY_S = 0.5


def settle(folders: Sequence[RunFolder], attempt: Callable[[Sequence[int]], Sequence[bool | None]]) -> list[bool]:
    """Attempt all runs, and come back to those that other drivers held until every one has ended; say of each whether it met no error.

    `attempt` is given places in `folders` and answers for each of them; None where another driver is at the run.
    """
    found = dict(enumerate(attempt(range(len(folders)))))
    while held := {place: folders[place] for place, well in found.items() if well is None}:
        free = wait_for_any(held)
        found |= zip(free, attempt(free), strict=True)
    return [bool(found[place]) for place in range(len(folders))]


def wait_for_any(held: Mapping[int, RunFolder]) -> list[int]:
    """Those that no other driver is at any more; says whom it waits for."""
    said: dict[int, str] = {}
    while True:
        holders = {index: holder(folder) for index, folder in held.items()}
        if free := [index for index, who in holders.items() if who is None]:
            return free
        for index, who in holders.items():
            if who and said.get(index) != who:
                said[index] = who
                print(f"{held[index].path.name}: waiting for {who}", flush=True)
        time.sleep(_LOOK_EVERY_S)
