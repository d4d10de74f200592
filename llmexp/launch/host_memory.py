"""The host's memory under a run: whether it comes to its end, told before the kernel kills something or the machine does nothing but swap."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

import psutil

from llmexp.launch.ending import Ending
from llmexp.machine.memory import host_memory_bytes, host_memory_left_bytes, stalled_share, swapped_bytes
from llmexp.machine.processes import held_bytes
from llmexp.record.result import RunStatus

GIB = 2**30
# Free and reclaimable memory, of all that processes here may have, below which the run is ended.
LEAST_LEFT_SHARE = 0.02
# Share of the last ten seconds in which every process that could have worked waited for memory (the kernel's `full avg10`).
MOST_STALLED_SHARE = 0.2
# Where the kernel does not tell that: swapped in, and as much swapped out, over as many seconds.
MOST_SWAPPED_BYTES_PER_S = 20e6
WINDOW_S = 10.0


class HostMemory:
    """Looked at once a tick; a reading takes a fraction of a millisecond."""

    def __init__(self) -> None:
        self._all_bytes = host_memory_bytes()
        self._swapped: deque[tuple[float, int, int]] = deque()
        self._was_low = False

    def exhausted(self, run: Callable[[], Iterable[psutil.Process]]) -> Ending | None:
        """The ending where memory has come to its end, by the fault of the run's processes or of others; None as long as it suffices."""
        left_bytes = host_memory_left_bytes()
        low, self._was_low = self._was_low, left_bytes < LEAST_LEFT_SHARE * self._all_bytes
        why = f"only {LEAST_LEFT_SHARE:.0%} may be left" if low and self._was_low else self._thrashing()
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
        """What was swapped in and as much out a second, over the last window; 0 before it is full."""
        self._swapped.append((time.monotonic(), *swapped_bytes()))
        (then_s, in_then, out_then), (now_s, in_now, out_now) = self._swapped[0], self._swapped[-1]
        if now_s - then_s < WINDOW_S:
            return 0.0
        self._swapped.popleft()
        return min(in_now - in_then, out_now - out_then) / (now_s - then_s)


def _ending(why: str, left_bytes: int, all_bytes: int, own_bytes: int) -> Ending:
    """Out of memory where the run holds most of what is taken; else another's fault, which is no answer about the run."""
    figures = f"host memory: {left_bytes / GIB:.1f} of {all_bytes / GIB:.1f} GiB left, the run's processes hold {own_bytes / GIB:.1f} GiB: {why}"
    if own_bytes >= (all_bytes - left_bytes) / 2:
        return Ending(RunStatus.OOM, figures)
    return Ending(RunStatus.FAILED, f"{figures}; other processes hold most of it")
