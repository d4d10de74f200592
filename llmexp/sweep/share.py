"""Share one sweep between several drivers.

Each driver measures the runs that no other holds, comes back for the rest and takes the others' results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from llmexp.launch.attempt import holder
from llmexp.record.folder import RunFolder

_LOOK_EVERY_S = 0.5


def settle(folders: Sequence[RunFolder], attempt: Callable[[Sequence[int]], Sequence[bool | None]]) -> list[bool]:
    """Attempt all runs, retry those that other drivers held, and say of each whether it met no error.

    `attempt` gets indices into `folders` and says the same of each of them; None where another driver holds the run.
    """
    found = dict(enumerate(attempt(range(len(folders)))))
    while held := {place: folders[place] for place, well in found.items() if well is None}:
        free = wait_for_any(held)
        found |= zip(free, attempt(free), strict=True)
    return [bool(found[place]) for place in range(len(folders))]


def wait_for_any(held: Mapping[int, RunFolder]) -> list[int]:
    """Wait until other drivers have released at least one of these runs, and return those; print the drivers' names."""
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
