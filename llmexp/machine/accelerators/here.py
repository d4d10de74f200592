"""The one answer to which accelerators this machine has, whoever made them."""

from __future__ import annotations

import os
from pathlib import Path

from llmexp.machine.accelerators import amd_board, nvml
from llmexp.machine.accelerators.amd import Amd
from llmexp.machine.accelerators.board import PCI, Board
from llmexp.machine.accelerators.gpu import Gpu, Vendor
from llmexp.machine.accelerators.nvidia import Nvidia

VENDORS: tuple[Vendor, ...] = (Nvidia(), Amd())
# The makers of cards that could train, by PCI vendor, and the PCI classes of such cards: 3D and display controllers
# without a screen's socket, and accelerators.
MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel", "0x1da3": "Habana"}
CLASSES = ("0x0302", "0x0380", "0x1200")
SCREENS = "0x0300"


def vendor() -> Vendor | None:
    """Return the maker of this machine's GPUs; None where no driver shows one."""
    return next((one for one in VENDORS if one.gpus()), None)


def gpus() -> tuple[Gpu, ...]:
    """Return all GPUs of this machine; none where no driver shows one."""
    found = vendor()
    return found.gpus() if found else ()


def visible_gpus() -> list[Gpu]:
    """Return the GPUs that this process may use, in the order in which torch counts them."""
    found = vendor()
    return found.visible() if found else []


def choosing_variable() -> str:
    """Return the variable by which a process is given some of the visible GPUs; CUDA's where there is no GPU."""
    return (vendor() or VENDORS[0]).chooses


def visible_variables() -> list[str]:
    """Return the variables that choose this process's GPUs: those that are set, else CUDA's, which ROCm reads too."""
    last = dict.fromkeys(name for one in VENDORS for name in one.variables[-1])
    return [name for name in last if name in os.environ] or [Nvidia().chooses]


def boards() -> list[Board]:
    """Return the sensors of all GPUs; none where a vendor's library or driver is missing."""
    return nvml.boards() or amd_board.boards()


def board(uuid: str) -> Board | None:
    """Return the sensors of the GPU with this UUID; None where its library, its driver or the GPU is missing."""
    return nvml.board(uuid) or amd_board.board(uuid)


def undriven(devices: Path = PCI) -> str:
    """Say which cards in this machine's PCI slots no driver shows as GPUs; "" where there are none.

    Intel's graphics inside a processor and the screens of server boards do not count.
    """
    found = {} if gpus() else dict.fromkeys(filter(None, map(_card, sorted(devices.glob("*")))))
    tools = " or ".join(one.tool for one in VENDORS)
    return f"this machine has {', '.join(found)}, and no GPU that {tools} shows" if found else ""


def _card(folder: Path) -> str:
    try:
        maker, kind = ((folder / name).read_text().strip() for name in ("vendor", "class"))
        device = (folder / "device").read_text().strip()
    except OSError:
        return ""
    made_to_compute = kind.startswith(CLASSES) or (kind.startswith(SCREENS) and maker in ("0x10de", "0x1002"))
    if maker not in MAKERS or not made_to_compute:
        return ""
    return f"a card of {MAKERS[maker]} (PCI {maker[2:]}:{device[2:]})"
