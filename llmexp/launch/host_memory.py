"""Watch the host's memory during a run, to end the run before the kernel kills a process or the machine only swaps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

import psutil

from llmexp.launch.ending import Ending
from llmexp.machine.memory import host_memory_bytes, host_memory_left_bytes, stalled_share, swapped_bytes
from llmexp.machine.processes import held_bytes
from llmexp.record.digits import GIB
from llmexp.record.result import RunStatus

# The run ends where less than this share is free or reclaimable, of all memory that processes here may use.
LEAST_LEFT_SHARE = 0.02
# Share of the last 10 s in which all processes that could have worked waited for memory (the kernel's `full avg10`).
MOST_STALLED_SHARE = 0.2
# Where the kernel does not report that: the highest rate of swapping out and in again, over the window below.
MOST_SWAPPED_BYTES_PER_S = 20e6
WINDOW_S = 10.0


class HostMemory:
    """A watch on the host's memory that is read once a tick; a reading takes a fraction of a millisecond."""

    def __init__(self) -> None:
        self._all_bytes = host_memory_bytes()
        self._swapped: deque[tuple[float, int, int]] = deque()
        self._was_low = False

    def exhausted(self, run: Callable[[], Iterable[psutil.Process]]) -> Ending | None:
        """Return the ending where the run's processes or others have exhausted memory; None as long as it suffices."""
        left_bytes = host_memory_left_bytes()
        low, self._was_low = self._was_low, left_bytes < LEAST_LEFT_SHARE * self._all_bytes
        why = f"the limit is {LEAST_LEFT_SHARE:.0%}" if low and self._was_low else self._thrashing()
        return _ending(why, left_bytes, self._all_bytes, sum(map(held_bytes, run()))) if why else None

    def _thrashing(self) -> str | None:
        stalled = stalled_share()
        if stalled is not None:
            return (
                f"all processes waited for it in {stalled:.0%} of the last 10 s"
                if stalled > MOST_STALLED_SHARE
                else None
            )
        rate = self._both_ways_bytes_per_s()
        return f"{rate / 1e6:.0f} MB/s are swapped out and in again" if rate > MOST_SWAPPED_BYTES_PER_S else None

    def _both_ways_bytes_per_s(self) -> float:
        """Return the lesser of the rates of swapping in and out over the last window; 0 before the window is full."""
        self._swapped.append((time.monotonic(), *swapped_bytes()))
        (then_s, in_then, out_then), (now_s, in_now, out_now) = self._swapped[0], self._swapped[-1]
        if now_s - then_s < WINDOW_S:
            return 0.0
        self._swapped.popleft()
        return min(in_now - in_then, out_now - out_then) / (now_s - then_s)


def _ending(why: str, left_bytes: int, all_bytes: int, own_bytes: int) -> Ending:
    """Return OOM where the run holds most of the memory in use, else FAILED, which is no answer about the run."""
    figures = (
        f"host memory: {left_bytes / GIB:.1f} of {all_bytes / GIB:.1f} GiB left, "
        f"the run's processes hold {own_bytes / GIB:.1f} GiB: {why}"
    )
    if own_bytes >= (all_bytes - left_bytes) / 2:
        return Ending(RunStatus.OOM, figures)
    return Ending(RunStatus.FAILED, f"{figures}; other processes hold most of it")
