"""Processes that stand still, told from those that a busy machine lets work slowly."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from llmexp.machine.process_tree import ProcessTree

# Of one core. What merely waits, and looks now and then whether it may go on, takes less than half of it.
WORKING_SHARE = 0.02
# Of the looks at them. What a busy machine gives no core is found running or in line for one at nearly every look.
WANTING_SHARE = 0.5
# One look may by chance find a process running that hardly ever does.
ENOUGH_LOOKS = 10


class StandstillWatch:
    """A watch over a process and those below it, or `only_below` it.

    They stand still once they have computed less than `WORKING_SHARE` of one core for `idle_s` seconds. On a busy
    machine they work slowly, or are in line for a core most of the time, but they work.
    """

    def __init__(
        self, pid: int, idle_s: float, *, only_below: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tree, self._itself = ProcessTree(pid), None if only_below else pid
        self._idle_s, self._clock = idle_s, clock
        self._worked_at_s, self._computed_s = clock(), 0.0
        self._looks, self._wanting = 0, 0

    def stands_still(self) -> bool:
        """Look at the processes, and return whether they have stood still for so long."""
        now_s, computed_s = self._clock(), self.computed_s()
        still_s = now_s - self._worked_at_s
        self._looks, self._wanting = self._looks + 1, self._wanting + self._wants_a_core()
        has_waited = still_s >= self._idle_s
        wants = self._looks >= ENOUGH_LOOKS and self._wanting > WANTING_SHARE * self._looks
        if computed_s - self._computed_s > WORKING_SHARE * still_s or (has_waited and wants):
            self._worked_at_s, self._computed_s = now_s, computed_s
            self._looks = self._wanting = 0
            return False
        return has_waited

    def computed_s(self) -> float:
        """Return the CPU seconds of all of them until now."""
        self._tree.living()
        below_s = self._tree.computed_s()
        if self._itself is None:
            return below_s
        try:
            times = psutil.Process(self._itself).cpu_times()
        except psutil.Error:
            return below_s
        return float(times.user + times.system + below_s)

    def _wants_a_core(self) -> bool:
        own = [self._itself] if self._itself is not None else []
        return any(map(_is_runnable, [*own, *(process.pid for process in self._tree.living())]))


def _is_runnable(pid: int) -> bool:
    """Tell whether a thread of a process runs or could; False where the kernel does not tell (not Linux)."""
    for told in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            if told.read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False
