"""The sensors of one GPU, whoever made it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PCI = Path("/sys/bus/pci/devices")


@dataclass(frozen=True)
class Board:
    """One GPU: its sensors by quantity, and what a sensor raises that it does not have.

    Quantities have their units in their names.
    """

    sensors: Mapping[str, Callable[[], Any]]
    processes: Callable[[], set[int]]
    """Returns the ids of the processes that compute on it."""
    bus_address: Callable[[], str]
    """Returns where the kernel knows it on the PCI bus: 0000:17:00.0."""
    unreadable: tuple[type[Exception], ...]

    def read(self, *quantities: str) -> dict[str, float]:
        """Return those of the quantities that the GPU tells."""
        told: dict[str, float] = {}
        for name in quantities:
            with contextlib.suppress(*self.unreadable):
                told[name] = float(self.sensors[name]())
        return told

    def local_cores(self, devices: Path = PCI) -> set[int]:
        """Return the logical cores of the GPU's own NUMA node; empty where the kernel does not tell."""
        with contextlib.suppress(OSError, ValueError, *self.unreadable):
            return cores_of((devices / self.bus_address() / "local_cpulist").read_text())
        return set()

    def running(self) -> set[int] | None:
        """Return the ids of the processes that compute on it; None where it does not tell."""
        with contextlib.suppress(*self.unreadable):
            return self.processes()
        return None


def cores_of(listed: str) -> set[int]:
    """Return the numbers in a list of the kernel's, such as 0-3,8; raises ValueError for other text."""
    found: set[int] = set()
    for part in filter(None, listed.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
