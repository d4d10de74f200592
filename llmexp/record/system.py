"""The machine beside a run: a thread of the driver that writes a line every few seconds, under the names of MLflow's system metrics."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from llmexp.record.gpus import MEGABYTE, Gpus

Processes = Callable[[], Iterable[psutil.Process]]
# NVML may hang with its driver; the run must end all the same.
_END_WITHIN_S = 10.0
# Seconds that no process of this system computed in; a guest's are in user already.
_NOT_COMPUTING = ("idle", "iowait", "steal", "guest", "guest_nice")


class SystemSampler:
    """Appends {at_s, interval_s, <metric>: value, …} to a JSONL file while the block runs; at least one line, and never an error.

    `elsewhere` names the run's processes that are not of this process's tree.
    """

    def __init__(self, path: Path, interval_s: float = 5.0, elsewhere: Processes = tuple) -> None:
        self._path, self._interval_s, self._elsewhere = path, interval_s, elsewhere
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="system-sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(_END_WITHIN_S)

    def _run(self) -> None:
        psutil.cpu_percent()  # the first call of a thread only sets where the next one counts from
        with contextlib.suppress(OSError), Gpus() as gpus, self._path.open("a", buffering=1) as file:
            cores, ended = CoresInUse(self._elsewhere), False
            while not ended:
                ended = self._ended.wait(self._interval_s)
                load = cores.since_last()
                file.write(json.dumps({"at_s": round(time.time(), 3)} | load | _host() | gpus.sample(cores.own_pids)) + "\n")


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
        """CPU seconds since the host started: of all processes, of this tree, stolen. A process that ended counts with the one that waited for it."""
        host, own_s = psutil.cpu_times(), 0.0
        self.own_pids = set()
        for process in self._own():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                own_s += times.user + times.system + times.children_user + times.children_system
                self.own_pids.add(process.pid)
        return sum(host) - sum(getattr(host, name, 0.0) for name in _NOT_COMPUTING), own_s, getattr(host, "steal", 0.0)

    def _own(self) -> set[psutil.Process]:
        found = {self._me}
        for root in (self._me, *self._elsewhere()):
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {root, *root.children(recursive=True)}
        return found


def _host() -> dict[str, float]:
    memory = psutil.virtual_memory()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "load_average_1m": round(os.getloadavg()[0], 2),
        "system_memory_usage_megabytes": round(memory.used / MEGABYTE, 1),
        "system_memory_usage_percentage": round(100 * memory.used / memory.total, 1),
    }
