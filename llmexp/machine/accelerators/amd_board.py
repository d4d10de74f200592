"""The sensors of AMD's GPUs, by AMD's management library (amdsmi, as ROCm 6 and 7 have it)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from llmexp.machine.accelerators.board import Board

# AMD's driver for computing; without it the library, which prints when it is imported, is left alone.
DRIVER = Path("/dev/kfd")


@cache
def library() -> Any | None:
    """Return the library, initialized; None where it or its driver is missing."""
    if not DRIVER.exists():
        return None
    try:
        import amdsmi

        amdsmi.amdsmi_init()
    # Where the shared library is missing, amdsmi's own import fails with KeyError.
    except (ImportError, OSError, KeyError, AttributeError):
        return None
    except Exception as error:
        if type(error).__name__.startswith("AmdSmi"):
            return None
        raise
    return amdsmi


def boards() -> list[Board]:
    """Return the sensors of all GPUs; none where the library or its driver is missing."""
    smi = library()
    if smi is None:
        return []
    try:
        handles = smi.amdsmi_get_processor_handles()
    except smi.AmdSmiException:
        return []
    return [_board(smi, handle) for handle in handles]


def board(uuid: str) -> Board | None:
    """Return the sensors of the GPU with this UUID; None where the library, its driver or the GPU is missing."""
    smi = library()
    if smi is None:
        return None
    try:
        handles = smi.amdsmi_get_processor_handles()
        found = next((one for one in handles if smi.amdsmi_get_gpu_device_uuid(one) == uuid), None)
    except smi.AmdSmiException:
        return None
    return None if found is None else _board(smi, found)


def _board(smi: Any, handle: Any) -> Board:
    def clock(kind: Any, name: str) -> Any:
        return smi.amdsmi_get_clock_info(handle, kind)[name]

    return Board(
        {
            "utilization_percentage": lambda: smi.amdsmi_get_gpu_activity(handle)["gfx_activity"],
            "memory_used_bytes": lambda: smi.amdsmi_get_gpu_vram_usage(handle)["vram_used"] * 1024**2,
            "memory_total_bytes": lambda: smi.amdsmi_get_gpu_vram_usage(handle)["vram_total"] * 1024**2,
            "power_w": lambda: _power_w(smi.amdsmi_get_power_info(handle)),
            # Caps are in microwatts.
            "power_cap_w": lambda: smi.amdsmi_get_power_cap_info(handle)["power_cap"] / 1e6,
            "power_cap_default_w": lambda: smi.amdsmi_get_power_cap_info(handle)["default_power_cap"] / 1e6,
            "energy_j": lambda: _energy_j(smi.amdsmi_get_energy_count(handle)),
            "sm_clock_megahertz": lambda: clock(smi.AmdSmiClkType.GFX, "clk"),
            "sm_clock_max_megahertz": lambda: clock(smi.AmdSmiClkType.GFX, "max_clk"),
            "memory_clock_megahertz": lambda: clock(smi.AmdSmiClkType.MEM, "clk"),
            "temperature_celsius": lambda: smi.amdsmi_get_temp_metric(
                handle, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            ),
        },
        lambda: {int(process["pid"]) for process in smi.amdsmi_get_gpu_process_list(handle)},
        lambda: str(smi.amdsmi_get_gpu_device_bdf(handle)).lower(),
        # What a GPU does not have is told as N/A, and as another key by another version.
        (smi.AmdSmiException, AttributeError, KeyError, TypeError, ValueError),
    )


def _power_w(told: dict[str, Any]) -> float:
    """Return the power now; MI200 tells only an average."""
    names = ("current_socket_power", "socket_power", "average_socket_power")
    numbers = [told[name] for name in names if isinstance(told.get(name), int | float)]
    return float(next(filter(None, numbers), numbers[0] if numbers else "N/A"))


def _energy_j(told: dict[str, Any]) -> float:
    """Return the counter, whose resolution is in microjoules; ROCm 6.0 and before called it power."""
    counted = told["energy_accumulator"] if "energy_accumulator" in told else told["power"]
    return float(counted * told["counter_resolution"] / 1e6)
