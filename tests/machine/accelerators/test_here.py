from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.machine.accelerators import here
from llmexp.machine.accelerators.gpu import Gpu
from llmexp.machine.accelerators.nvidia import Nvidia

H100, MI300X = ("0x10de", "0x2330", "0x030200"), ("0x1002", "0x74a1", "0x120000")
ASPEED, INTEL_IN_A_PROCESSOR = ("0x1a03", "0x2000", "0x030000"), ("0x8086", "0x4680", "0x030000")


@pytest.fixture
def slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write the kernel's folder of PCI devices, each by vendor, device and class."""
    monkeypatch.setattr(here, "VENDORS", (Nvidia(),))
    monkeypatch.setattr(Nvidia, "gpus", lambda self: ())

    def write(*cards: tuple[str, str, str]) -> Path:
        for number, card in enumerate(cards):
            folder = tmp_path / f"0000:{number:02x}:00.0"
            folder.mkdir()
            for name, value in zip(("vendor", "device", "class"), card, strict=True):
                (folder / name).write_text(f"{value}\n")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        ([H100, H100], "this machine has a card of NVIDIA (PCI 10de:2330), and no GPU that nvidia-smi shows"),
        ([ASPEED, MI300X], "this machine has a card of AMD (PCI 1002:74a1), and no GPU that nvidia-smi shows"),
        ([("0x1da3", "0x1020", "0x120000")], "this machine has a card of Habana (PCI 1da3:1020), "),
        ([("0x10de", "0x2684", "0x030000")], "this machine has a card of NVIDIA (PCI 10de:2684), "),
    ],
)
def test_a_card_that_no_driver_shows_is_named(
    slots: Callable[..., Path], cards: list[tuple[str, str, str]], said: str
) -> None:
    assert here.undriven(slots(*cards)).startswith(said)


def test_screens_and_other_devices_are_no_cards(slots: Callable[..., Path]) -> None:
    network = ("0x8086", "0x1572", "0x020000")
    assert here.undriven(slots(ASPEED, INTEL_IN_A_PROCESSOR, network)) == ""


def test_where_a_driver_shows_gpus_no_card_is_missing(
    slots: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nvidia, "gpus", lambda self: (Gpu("0", "GPU-a", "NVIDIA H100", "81559", "700", "580"),))
    assert here.undriven(slots(H100)) == ""


def test_a_machine_without_pci_has_no_cards(slots: Callable[..., Path], tmp_path: Path) -> None:
    slots()
    assert here.undriven(tmp_path / "missing") == ""
