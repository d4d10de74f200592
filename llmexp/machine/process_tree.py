"""What the processes below one hold and compute, looked at again and again at little cost."""

from __future__ import annotations

import time

import psutil

from llmexp.machine.processes import held_bytes


class ProcessTree:
    """The living processes below one, which is not among them itself.

    Who they are is looked up every `again_s` seconds, and when one has ended: that goes through all processes of the
    machine. One that began since is not seen yet.
    """

    def __init__(self, pid: int, again_s: float = 5.0) -> None:
        self._pid, self._again_s = pid, again_s
        self._found: list[psutil.Process] = []
        self._looked_s = -again_s
        self._computed_s: dict[psutil.Process, float] = {}

    def living(self) -> list[psutil.Process]:
        """Return the processes that run now, as far as they are known."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= self._again_s or not all(map(_lives, self._found)):
            self._found, self._looked_s = descendants(self._pid), now_s
        return self._found

    def resident_bytes(self) -> int:
        """Return the resident memory of all; memory that several share counts in each."""
        return sum(map(held_bytes, self._found))

    def computed_s(self) -> float:
        """Return the CPU seconds of all that were ever seen; never less than before."""
        for process in self._found:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._computed_s[process] = times.user + times.system
        return sum(self._computed_s.values())


def descendants(pid: int) -> list[psutil.Process]:
    """Return the living processes below this one; none where it has ended."""
    try:
        return [process for process in psutil.Process(pid).children(recursive=True) if _lives(process)]
    except psutil.NoSuchProcess:
        return []


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
