"""The machine's load beside a run: a thread of the driver that writes a line every few seconds, under the names of MLflow's system metrics."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

MEGABYTE = 1e6
# NVML may hang with its driver; the run must end all the same.
_END_WITHIN_S = 10.0


class SystemSampler:
    """Appends {at_s, <metric>: value, …} to a JSONL file while the block runs; at least one line, and never an error."""

    def __init__(self, path: Path, interval_s: float = 5.0) -> None:
        self._path, self._interval_s = path, interval_s
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
        with contextlib.suppress(OSError), _Gpus() as gpus, self._path.open("a", buffering=1) as file:
            ended = False
            while not ended:
                ended = self._ended.wait(self._interval_s)
                file.write(json.dumps({"at_s": round(time.time(), 3)} | _host() | gpus.sample()) + "\n")


def _host() -> dict[str, float]:
    memory = psutil.virtual_memory()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": round(memory.used / MEGABYTE, 1),
        "system_memory_usage_percentage": round(100 * memory.used / memory.total, 1),
    }


class _Gpus:
    """All GPUs of the node by NVML; none where its library or driver is missing. What one GPU cannot tell is left out."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        try:
            import pynvml
        except ImportError:
            return self
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return self

    def __exit__(self, *_: object) -> None:
        if self._nvml:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def sample(self) -> dict[str, float]:
        """Utilisation, memory and power of each GPU."""
        values: dict[str, float] = {}
        for index, handle in enumerate(self._handles):
            for read in (self._utilization, self._memory, self._power):
                with contextlib.suppress(self._nvml.NVMLError):
                    values.update((f"gpu_{index}_{name}", value) for name, value in read(handle))
        return values

    def _utilization(self, handle: Any) -> Iterator[tuple[str, float]]:
        yield "utilization_percentage", self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu

    def _memory(self, handle: Any) -> Iterator[tuple[str, float]]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        yield "memory_usage_megabytes", round(memory.used / MEGABYTE, 1)
        yield "memory_usage_percentage", round(100 * memory.used / memory.total, 1)

    def _power(self, handle: Any) -> Iterator[tuple[str, float]]:
        watts = self._nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
        yield "power_usage_watts", watts
        yield "power_usage_percentage", round(1e5 * watts / self._nvml.nvmlDeviceGetEnforcedPowerLimit(handle), 1)
