"""The sampler of the machine's load during a run: a thread of the driver that writes a line every few seconds.

The lines use the names of MLflow's system metrics.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from llmexp.machine import host_load
from llmexp.machine.gpu_load import GpuLoad
from llmexp.machine.host_load import CoresInUse, Processes

# NVML may hang with its driver, and the run must end nevertheless.
_END_WITHIN_S = 10.0


class SystemSampler:
    """A sampler that appends {at_s, interval_s, <metric>: value, …} to a JSONL file while the block runs.

    It writes at least one line where it can, and never raises an error. `elsewhere` returns the run's processes that
    are not in this process's tree.
    """

    def __init__(self, path: Path, interval_s: float = 5.0, elsewhere: Processes = tuple) -> None:
        self._path, self._interval_s, self._elsewhere = path, interval_s, elsewhere
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="system-sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(_END_WITHIN_S)

    def _run(self) -> None:
        host_load.begin_counting()
        with contextlib.suppress(OSError), self._path.open("a", buffering=1) as file:
            gpus, cores, ended = GpuLoad(), CoresInUse(self._elsewhere), False
            while not ended:
                ended = self._ended.wait(self._interval_s)
                own = cores.since_last()
                file.write(
                    json.dumps({"at_s": round(time.time(), 3)} | own | host_load.load() | gpus.sample(cores.own_pids))
                    + "\n"
                )
