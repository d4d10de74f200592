"""Energy between two moments, from counters that the hardware keeps: NVML's of a GPU board, RAPL's of the node's CPU packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from llmexp.record import nvml
from llmexp.record.samples import Energy

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


class EnergyMeter:
    """Reads its counters around a block; `energy` is None where they could not be read, as without counters (None)."""

    def __init__(self, counters: Sequence[Counter] | None) -> None:
        self._counters = counters
        self.energy: Energy | None = None

    def __enter__(self) -> Self:
        self._begun_s = perf_counter()
        self._earlier_j = [counter.read() for counter in self._counters or ()]
        return self

    def __exit__(self, *_: object) -> None:
        if self._counters is not None:
            joules = {counter.name: counter.since(earlier_j) for counter, earlier_j in zip(self._counters, self._earlier_j, strict=True)}
            if all(map(isfinite, joules.values())):
                self.energy = Energy(seconds=perf_counter() - self._begun_s, joules=joules)

    @property
    def covers(self) -> list[str] | None:
        """What this rank's counters cover; None where they could not be read."""
        return list(self.energy.joules) if self.energy else None


def gpu_counters(uuid: str) -> list[Counter] | None:
    """The counter of the whole board of one GPU; None where NVML, its driver or the counter (there since Volta) is missing."""
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
    """The counters of all CPU packages of this node, Intel's and AMD's; None where there are none or they are root's alone, as in most systems."""
    zones = [path.parent for path in sorted(powercap.glob("intel-rapl:*/name")) if path.read_text().startswith("package-")]
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
