"""The present load of this machine's processor and memory, under the names of MLflow's system metrics.

The processor's load is split by who causes it: the run, other processes, or a hypervisor.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from llmexp.machine.gpu_load import MEGABYTE
from llmexp.machine.memory import machine_memory_bytes, used_memory_bytes
from llmexp.machine.processor import bound_core_numbers

Processes = Callable[[], Iterable[psutil.Process]]
# CPU time in which no process of this system computed; the kernel counts a guest's time in `user` too.
_NOT_COMPUTING = ("idle", "iowait", "steal", "guest", "guest_nice")


class CoresInUse:
    """A meter that tells the run's own CPU work from other work on the host, and from a hypervisor's.

    The run's own work is that of this process's tree and of the trees of `elsewhere`.
    """

    def __init__(self, elsewhere: Processes = tuple) -> None:
        self._me, self._elsewhere = psutil.Process(), elsewhere
        self._own: dict[psutil.Process, _Used] = {}
        self._own_s = 0.0
        self._last = (time.monotonic(), *self._computed())

    @property
    def own_pids(self) -> set[int]:
        """The ids of the run's processes at the last call."""
        return {process.pid for process in self._own}

    def since_last(self) -> dict[str, float]:
        """Return the mean cores that the run, others and a hypervisor used since the last call, interval_s ago."""
        earlier, self._last = self._last, (time.monotonic(), *self._computed())
        seconds, host, own, stolen = (now - then for now, then in zip(self._last, earlier, strict=True))
        seconds = max(seconds, 1e-3)
        return {
            "interval_s": round(seconds, 3),
            "cpu_own_cores": round(own / seconds, 3),
            "cpu_other_cores": round(max(host - own, 0.0) / seconds, 3),
            "cpu_stolen_cores": round(stolen / seconds, 3),
        }

    def _computed(self) -> tuple[float, float, float]:
        """Return CPU seconds since the host started: of all processes, of the run's own, and stolen by a hypervisor.

        The first and the last are those of the cores that this process may use: what others do elsewhere does not
        disturb it. The time of a process that has ended counts for the process that waited for it.
        """
        before, self._own = self._own, {}
        for process in self._trees():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total_s = times.user + times.system + times.children_user + times.children_system
                self._own[process] = _Used(total_s, process.ppid(), time.time())
        grown_s = _total_s(self._own) - _total_s(before)
        self._own_s += max(0.0, grown_s - _used_before(self._own, before) + _used_by_strays(before, self._own))
        cores = _usable(psutil.cpu_times(percpu=True))
        idle_s = sum(getattr(core, name, 0.0) for core in cores for name in _NOT_COMPUTING)
        return sum(map(sum, cores)) - idle_s, self._own_s, sum(getattr(core, "steal", 0.0) for core in cores)

    def _trees(self) -> set[psutil.Process]:
        found = {self._me}
        for root in (self._me, *self._elsewhere()):
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {root, *root.children(recursive=True)}
        return found


@dataclass(frozen=True)
class _Used:
    """The CPU seconds of a process and of those that it has waited for, its parent, and when this was read."""

    seconds: float
    parent: int
    at_unix_s: float


_Processes = Mapping[psutil.Process, _Used]


def _total_s(processes: _Processes) -> float:
    return sum(used.seconds for used in processes.values())


def _used_before(now: _Processes, before: _Processes) -> float:
    """Return what processes that are new here had used before: a tree elsewhere may be known only after a while.

    A process is taken to have computed evenly since it was created.
    """
    earlier_s = 0.0
    last_s = max((used.at_unix_s for used in before.values()), default=0.0)
    for process in now.keys() - before.keys():
        created_s, used = process.create_time(), now[process]
        if created_s < last_s:
            earlier_s += used.seconds * (last_s - created_s) / (used.at_unix_s - created_s)
    return earlier_s


def _used_by_strays(before: _Processes, now: _Processes) -> float:
    """Return what processes had used that have ended and that no process here has waited for."""
    pids, parents = {process.pid for process in now}, {process.pid: used.parent for process, used in before.items()}

    def is_stray(parent: int) -> bool:
        while parent in parents and parent not in pids:
            parent = parents[parent]
        return parent not in pids

    return sum(used.seconds for process, used in before.items() if process not in now and is_stray(used.parent))


def _usable(cores: Sequence[Any]) -> Sequence[Any]:
    """Return the cores that this process may use; all of them where a container numbers its cores otherwise."""
    bound = bound_core_numbers()
    return [cores[number] for number in sorted(bound)] if bound and max(bound) < len(cores) else cores


def load_averages() -> tuple[float, float, float]:
    """Return how many processes computed or wanted to, on average over the last 1, 5 and 15 minutes."""
    return os.getloadavg()


def begin_counting() -> None:
    """Start the interval over which this thread's next `load` measures the processor's use."""
    psutil.cpu_percent()


def load() -> dict[str, float]:
    """Return the load average, the use of memory, and the use of the processor since the thread's last call."""
    used_bytes = used_memory_bytes()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "load_average_1m": round(load_averages()[0], 2),
        "system_memory_usage_megabytes": round(used_bytes / MEGABYTE, 1),
        "system_memory_usage_percentage": round(100 * used_bytes / machine_memory_bytes(), 1),
    }
