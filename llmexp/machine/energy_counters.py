"""Energy counters of the hardware: NVML has one for each GPU board, RAPL one for each CPU package."""

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
    """A counter of joules since some moment.

    `read` gives NaN where one reading fails. The count starts again at `wraps_at_j`, if that is given.
    """

    name: str
    read: Callable[[], float]
    wraps_at_j: float | None = None

    def since(self, earlier_j: float) -> float:
        """Return the joules since an earlier reading; it can correct for one wrap only."""
        joules = self.read() - earlier_j
        return joules + self.wraps_at_j if joules < 0 and self.wraps_at_j else joules


def gpu_counters(uuid: str) -> list[Counter] | None:
    """Return the counter of one GPU's whole board.

    Return None where NVML, its driver or the counter is missing; GPUs have the counter since Volta.
    """
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
    """Return the counters of all CPU packages of this node, Intel's and AMD's.

    Return None where there are none, or where only root may read them, as on most systems.
    """
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
