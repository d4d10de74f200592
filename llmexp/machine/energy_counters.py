"""Counters of energy that the hardware keeps: NVML's of a GPU board, RAPL's of the machine's CPU packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

from llmexp.machine import nvml

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Counter:
    """Reads joules since some moment, NaN where that fails once; starts again at `wraps_at_j`, where it has such an end."""

    name: str
    read: Callable[[], float]
    wraps_at_j: float | None = None

    def since(self, earlier_j: float) -> float:
        """Joules since an earlier reading; of several wraps since then only one can be seen."""
        joules = self.read() - earlier_j
        return joules + self.wraps_at_j if joules < 0 and self.wraps_at_j else joules


def gpu_counters(uuid: str) -> list[Counter] | None:
    """Return the counter of the whole board of one GPU; None where NVML, its driver or the counter (there since Volta) is missing."""
    found = nvml.board(uuid)
    if found is None:
        return None
    library, handle = found
    try:
        library.nvmlDeviceGetTotalEnergyConsumption(handle)
    except library.NVMLError:
        return None
    return [Counter("GPU board", partial(_board_joules, library, handle))]


def package_counters(powercap: Path = POWERCAP) -> list[Counter] | None:
    """Return those of all CPU packages of this node, Intel's and AMD's; None where there are none or they are root's alone, as in most systems."""
    zones = [
        path.parent for path in sorted(powercap.glob("intel-rapl:*/name")) if path.read_text().startswith("package-")
    ]
    try:
        return [_package(zone) for zone in zones] or None
    except OSError:
        return None


def _board_joules(library: Any, handle: Any) -> float:
    try:
        return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
    except library.NVMLError:
        return nan


def _package(zone: Path) -> Counter:
    read = partial(_joules, zone / "energy_uj")
    read()
    return Counter(f"CPU {(zone / 'name').read_text().strip()}", read, _joules(zone / "max_energy_range_uj"))


def _joules(path: Path) -> float:
    return int(path.read_text()) / 1e6
