"""Access to NVIDIA's management library (NVML), and the questions that several modules ask it."""

from __future__ import annotations

from typing import Any


def library() -> Any | None:
    """Return the library, initialised; None where it or its driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def board(uuid: str) -> tuple[Any, Any] | None:
    """Return the library and its handle for a GPU; None where the library, its driver or the GPU is missing."""
    nvml = library()
    if nvml is None:
        return None
    try:
        return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        return None


def power_cap_w(nvml: Any, handle: Any) -> float:
    """Return the power that a GPU may draw now; raises the library's NVMLError where it has no cap."""
    return float(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1e3


def power_cap_default_w(nvml: Any, handle: Any) -> float:
    """Return the power that a GPU may draw by default; raises the library's NVMLError where it has no cap."""
    return float(nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)) / 1e3
