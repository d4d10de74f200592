"""The present state of all GPUs of this machine, read from NVML.

It covers load, memory, power, clocks, temperature, throttling, and whose processes use each GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Self

import psutil

from llmexp.machine import nvml

MEGABYTE = 1e6


def clock_and_temperature(uuid: str) -> dict[str, float]:
    """Return sm_clock_megahertz and temperature_celsius of the GPU with this UUID, as far as its driver tells them."""
    told = board_load(uuid)
    return {name: told[name] for name in ("sm_clock_megahertz", "temperature_celsius") if name in told}


def board_load(uuid: str) -> dict[str, float]:
    """Return the memory in use, power, clocks and temperature of the GPU with this UUID, as far as its driver tells."""
    found = nvml.board(uuid)
    if found is None:
        return {}
    library, handle = found
    readings: dict[str, Callable[[], Any]] = {
        "memory_used_bytes": lambda: library.nvmlDeviceGetMemoryInfo(handle).used,
        "power_w": lambda: library.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "sm_clock_megahertz": lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
        "memory_clock_megahertz": lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
        "temperature_celsius": lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
    }
    values: dict[str, float] = {}
    for name, read in readings.items():
        with contextlib.suppress(library.NVMLError, AttributeError):
            values[name] = float(read())
    return values


class GpuLoad:
    """A sampler of every GPU; it samples none where NVML's library or driver is missing.

    A quantity that a GPU does not report is left out.
    """

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        self._nvml = nvml.library()
        if self._nvml:
            with contextlib.suppress(self._nvml.NVMLError):
                self._handles = [
                    self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self._nvml.nvmlDeviceGetCount())
                ]
        return self

    def __exit__(self, *_: object) -> None:
        if self._nvml:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def sample(self, own: AbstractSet[int]) -> dict[str, float]:
        """Return gpu_<index>_<quantity> for each GPU; `own` are the run's process ids."""
        powers, clocks = (
            (self._power, self._power_default),
            (self._clocks, self._clock_max, self._clock_boost, self._clock_set),
        )
        readings = (self._utilization, self._memory, *powers, *clocks, self._temperature, self._throttling)
        values: dict[str, float] = {}
        for index, handle in enumerate(self._handles):
            for read in (*readings, lambda handle: self._processes(handle, own)):
                # A newer pynvml may have dropped a call that NVML no longer wants.
                with contextlib.suppress(self._nvml.NVMLError, AttributeError):
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
        cap_watts = nvml.power_cap_w(self._nvml, handle)
        yield "power_usage_percentage", round(100 * watts / cap_watts, 1)
        yield "power_cap_watts", cap_watts

    def _power_default(self, handle: Any) -> Iterator[tuple[str, float]]:
        yield "power_cap_default_watts", nvml.power_cap_default_w(self._nvml, handle)

    def _clocks(self, handle: Any) -> Iterator[tuple[str, float]]:
        yield "sm_clock_megahertz", self._nvml.nvmlDeviceGetClockInfo(handle, self._nvml.NVML_CLOCK_SM)
        yield "memory_clock_megahertz", self._nvml.nvmlDeviceGetClockInfo(handle, self._nvml.NVML_CLOCK_MEM)

    def _clock_max(self, handle: Any) -> Iterator[tuple[str, float]]:
        yield "sm_clock_max_megahertz", self._nvml.nvmlDeviceGetMaxClockInfo(handle, self._nvml.NVML_CLOCK_SM)

    def _clock_boost(self, handle: Any) -> Iterator[tuple[str, float]]:
        """Yield the clock of a data-centre card that nothing slows down; other cards do not report it."""
        yield (
            "clock_boost_megahertz",
            self._nvml.nvmlDeviceGetMaxCustomerBoostClock(handle, self._nvml.NVML_CLOCK_GRAPHICS),
        )

    def _clock_set(self, handle: Any) -> Iterator[tuple[str, float]]:
        yield (
            "application_clock_megahertz",
            self._nvml.nvmlDeviceGetApplicationsClock(handle, self._nvml.NVML_CLOCK_GRAPHICS),
        )
        yield (
            "application_clock_default_megahertz",
            self._nvml.nvmlDeviceGetDefaultApplicationsClock(handle, self._nvml.NVML_CLOCK_GRAPHICS),
        )

    def _temperature(self, handle: Any) -> Iterator[tuple[str, float]]:
        yield "temperature_celsius", self._nvml.nvmlDeviceGetTemperature(handle, self._nvml.NVML_TEMPERATURE_GPU)

    def _throttling(self, handle: Any) -> Iterator[tuple[str, float]]:
        """Yield NVML's bit mask; analysis.contention names the bits."""
        yield "throttle_reasons", self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)

    def _processes(self, handle: Any, own: AbstractSet[int]) -> Iterator[tuple[str, float]]:
        # In a container NVML may name processes of other namespaces, whose ids mean nothing here.
        pids = {
            process.pid
            for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if psutil.pid_exists(process.pid)
        }
        yield "own_processes", len(pids & own)
        yield "other_processes", len(pids - own)
