"""The sensors of NVIDIA's GPUs, by NVIDIA's management library (NVML)."""

from __future__ import annotations

from typing import Any

from llmexp.machine.accelerators.board import Board


def library() -> Any | None:
    """Return the library, initialized; None where it or its driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def handle_of(uuid: str) -> tuple[Any, Any] | None:
    """Return the library and its handle for a GPU; None where the library, its driver or the GPU is missing."""
    nvml = library()
    if nvml is None:
        return None
    try:
        return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        return None


def board(uuid: str) -> Board | None:
    """Return the sensors of the GPU with this UUID; None where the library, its driver or the GPU is missing."""
    found = handle_of(uuid)
    return _board(*found) if found else None


def boards() -> list[Board]:
    """Return the sensors of all GPUs; none where the library or its driver is missing."""
    nvml = library()
    if nvml is None:
        return []
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []
    return [_board(nvml, handle) for handle in handles]


def power_cap_w(nvml: Any, handle: Any) -> float:
    """Return the power that a GPU may draw now; raises the library's NVMLError where it has no cap."""
    return float(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1e3


def power_cap_default_w(nvml: Any, handle: Any) -> float:
    """Return the power that a GPU may draw by default; raises the library's NVMLError where it has no cap."""
    return float(nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)) / 1e3


def _board(nvml: Any, handle: Any) -> Board:
    return Board(
        {
            "utilization_percentage": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "memory_total_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "power_cap_w": lambda: power_cap_w(nvml, handle),
            "power_cap_default_w": lambda: power_cap_default_w(nvml, handle),
            "energy_j": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
            "sm_clock_megahertz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_megahertz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "sm_clock_max_megahertz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            # The clock of a data-center card that nothing slows down; other cards do not report it.
            "clock_boost_megahertz": lambda: nvml.nvmlDeviceGetMaxCustomerBoostClock(handle, nvml.NVML_CLOCK_GRAPHICS),
            "application_clock_megahertz": lambda: nvml.nvmlDeviceGetApplicationsClock(
                handle, nvml.NVML_CLOCK_GRAPHICS
            ),
            "application_clock_default_megahertz": lambda: nvml.nvmlDeviceGetDefaultApplicationsClock(
                handle, nvml.NVML_CLOCK_GRAPHICS
            ),
            "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            # NVML's bit mask; analysis.contention names the bits.
            "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        },
        lambda: {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)},
        lambda: _address(nvml.nvmlDeviceGetPciInfo(handle).busId),
        # A newer pynvml may have dropped a call that NVML no longer wants.
        (nvml.NVMLError, AttributeError),
    )


def _address(bus_id: str | bytes) -> str:
    """Return the kernel's form of NVML's 00000000:17:00.0; the kernel's domain has four digits."""
    words = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = words.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
