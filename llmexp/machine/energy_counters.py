"""Energy counters of the hardware: each GPU board has one, and by RAPL each CPU package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path

from llmexp.machine.accelerators import here
from llmexp.machine.accelerators.board import Board

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

    Return None where its driver or the counter is missing; NVIDIA's GPUs have the counter since Volta.
    """
    board = here.board(uuid)
    return [Counter("GPU board", partial(_board_joules, board))] if board and board.read("energy_j") else None


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


def _board_joules(board: Board) -> float:
    return board.read("energy_j").get("energy_j", nan)


def _package(zone: Path) -> Counter:
    read = partial(_joules, zone / "energy_uj")
    read()
    return Counter(f"CPU {(zone / 'name').read_text().strip()}", read, _joules(zone / "max_energy_range_uj"))


def _joules(path: Path) -> float:
    return int(path.read_text()) / 1e6
