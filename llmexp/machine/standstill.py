"""Processes that stand still, told from those that a busy machine lets work slowly."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from llmexp.machine.process_tree import ProcessTree

# Of one core. What merely waits, and looks now and then whether it may go on, takes less than half of it.
WORKING_SHARE = 0.02


class StandstillWatch:
    """A watch over a process and those below it, or `only_below` it.

    They stand still once they have computed less than `WORKING_SHARE` of one core for `idle_s` seconds. On a busy
    machine they work slowly, but they work.
    """

    def __init__(
        self, pid: int, idle_s: float, *, only_below: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tree, self._itself = ProcessTree(pid), None if only_below else pid
        self._idle_s, self._clock = idle_s, clock
        self._worked_at_s, self._computed_s = clock(), 0.0

    def stands_still(self) -> bool:
        """Look at the processes, and return whether they have stood still for so long."""
        now_s, computed_s = self._clock(), self.computed_s()
        still_s = now_s - self._worked_at_s
        if computed_s - self._computed_s > WORKING_SHARE * still_s:
            self._worked_at_s, self._computed_s = now_s, computed_s
            return False
        return still_s >= self._idle_s

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
