"""How loaded this machine is at the moment: its processor, by whose work, and its memory, under the names of MLflow's system metrics."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psutil

from llmexp.machine.gpu_load import MEGABYTE
from llmexp.machine.memory import machine_memory_bytes, used_memory_bytes
from llmexp.machine.processor import bound_core_numbers

Processes = Callable[[], Iterable[psutil.Process]]
# Seconds that no process of this system computed in; a guest's are in user already.
_NOT_COMPUTING = ("idle", "iowait", "steal", "guest", "guest_nice")


class CoresInUse:
    """Tells the work of this process's tree, and of the trees of `elsewhere`, from what disturbs it: other work on the host, and a hypervisor's."""

    def __init__(self, elsewhere: Processes = tuple) -> None:
        self._me, self._elsewhere = psutil.Process(), elsewhere
        self.own_pids: set[int] = set()
        self._last = (time.monotonic(), *self._computed())

    def since_last(self) -> dict[str, float]:
        """Mean cores since the last call, which was interval_s ago: that the tree kept busy, that others did, that a hypervisor took."""
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
        """Return CPU seconds since the host started: of all processes, of this tree, stolen.

        The first and the last are those of the cores that this process may use: what others do elsewhere does not disturb
        it. A process that ended counts with the one that waited for it.
        """
        own_s = 0.0
        self.own_pids = set()
        for process in self._own():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                own_s += times.user + times.system + times.children_user + times.children_system
                self.own_pids.add(process.pid)
        cores = _usable(psutil.cpu_times(percpu=True))
        idle_s = sum(getattr(core, name, 0.0) for core in cores for name in _NOT_COMPUTING)
        return sum(map(sum, cores)) - idle_s, own_s, sum(getattr(core, "steal", 0.0) for core in cores)

    def _own(self) -> set[psutil.Process]:
        found = {self._me}
        for root in (self._me, *self._elsewhere()):
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {root, *root.children(recursive=True)}
        return found


def _usable(cores: Sequence[Any]) -> Sequence[Any]:
    """Return the cores that this process may use, of those of the host in their order; all where a container numbers them otherwise."""
    bound = bound_core_numbers()
    return [cores[number] for number in sorted(bound)] if bound and max(bound) < len(cores) else cores


def load_averages() -> tuple[float, float, float]:
    """Return how many processes computed or wanted to, on average of the last 1, 5 and 15 minutes."""
    return os.getloadavg()


def begin_counting() -> None:
    """Set where this thread's next `load` counts the processor's use from."""
    psutil.cpu_percent()


def load() -> dict[str, float]:
    """Return the use of the processor since the thread's last call, in percent, the load average, and the use of memory."""
    used_bytes = used_memory_bytes()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "load_average_1m": round(load_averages()[0], 2),
        "system_memory_usage_megabytes": round(used_bytes / MEGABYTE, 1),
        "system_memory_usage_percentage": round(100 * used_bytes / machine_memory_bytes(), 1),
    }
