"""The present state of all GPUs of this machine, as their sensors tell it.

It covers load, memory, power, clocks, temperature, throttling, and whose processes use each GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import psutil

from llmexp.machine.accelerators import here
from llmexp.machine.accelerators.board import Board

MEGABYTE = 1e6
# Quantities that a sample holds as they are.
_AS_TOLD = (
    *("utilization_percentage", "sm_clock_megahertz", "memory_clock_megahertz", "sm_clock_max_megahertz"),
    *("clock_boost_megahertz", "application_clock_megahertz", "application_clock_default_megahertz"),
    *("temperature_celsius", "throttle_reasons"),
)


def clock_and_temperature(uuid: str) -> dict[str, float]:
    """Return sm_clock_megahertz and temperature_celsius of the GPU with this UUID, as far as its driver tells them."""
    board = here.board(uuid)
    return board.read("sm_clock_megahertz", "temperature_celsius") if board else {}


def board_load(uuid: str) -> dict[str, float]:
    """Return the memory in use, power, clocks and temperature of the GPU with this UUID, as far as its driver tells."""
    board = here.board(uuid)
    clocks = ("sm_clock_megahertz", "memory_clock_megahertz", "temperature_celsius")
    return board.read("memory_used_bytes", "power_w", *clocks) if board else {}


class GpuLoad:
    """A sampler of every GPU; it samples none where the library of their sensors or their driver is missing.

    A quantity that a GPU does not report is left out.
    """

    def __init__(self) -> None:
        self._boards = here.boards()

    def sample(self, own: AbstractSet[int]) -> dict[str, float]:
        """Return gpu_<index>_<quantity> for each GPU; `own` are the run's process ids."""
        samples = (_sample(board) | _processes(board, own) for board in self._boards)
        return {f"gpu_{index}_{name}": value for index, found in enumerate(samples) for name, value in found.items()}


def _sample(board: Board) -> dict[str, float]:
    told = board.read("memory_used_bytes", "memory_total_bytes", "power_w", "power_cap_w", "power_cap_default_w")
    values = board.read(*_AS_TOLD)
    if "memory_used_bytes" in told:
        values["memory_usage_megabytes"] = round(told["memory_used_bytes"] / MEGABYTE, 1)
    values |= _share("memory_usage_percentage", told, "memory_used_bytes", "memory_total_bytes")
    values |= _share("power_usage_percentage", told, "power_w", "power_cap_w")
    names = {
        "power_w": "power_usage_watts",
        "power_cap_w": "power_cap_watts",
        "power_cap_default_w": "power_cap_default_watts",
    }
    return values | {name: told[quantity] for quantity, name in names.items() if quantity in told}


def _share(name: str, told: Mapping[str, float], part: str, whole: str) -> dict[str, float]:
    return {name: round(100 * told[part] / told[whole], 1)} if part in told and told.get(whole) else {}


def _processes(board: Board, own: AbstractSet[int]) -> dict[str, float]:
    """Count the GPU's processes; in a container it may name those of other namespaces, whose ids mean nothing here."""
    running = board.running()
    if running is None:
        return {}
    pids = {pid for pid in running if psutil.pid_exists(pid)}
    return {"own_processes": len(pids & own), "other_processes": len(pids - own)}
