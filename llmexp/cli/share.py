"""Several drivers on one sweep: each does what no other is at, comes back for the rest and takes the others' results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from hydra.core.utils import JobReturn, JobStatus

from llmexp.launch.attempt import holder
from llmexp.record.folder import RunFolder

# What a job returns whose run another driver was at.
HELD = "held by another driver"
_LOOK_EVERY_S = 0.5


def settle(folders: Sequence[RunFolder], returned: Sequence[JobReturn], launch: Callable[[Sequence[int]], Sequence[JobReturn]]) -> list[JobReturn]:
    """Come back to runs that other drivers held until every one has ended; what they left undone `launch` does, given its places in `folders`."""
    found = list(returned)
    while held := {index: folders[index] for index, one in enumerate(found) if one.status is JobStatus.COMPLETED and one.return_value == HELD}:
        free = wait_for_any(held)
        for index, again in zip(free, launch(free), strict=True):
            found[index] = again
    return found


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
