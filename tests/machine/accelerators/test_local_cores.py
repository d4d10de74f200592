from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.machine.accelerators.board import Board, cores_of
from llmexp.machine.accelerators.nvml import _address


def board(address: str) -> Board:
    return Board({}, set, lambda: address, (KeyError,))


@pytest.mark.parametrize(
    ("listed", "cores"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("\n", set()), ("0-1,4-5", {0, 1, 4, 5})]
)
def test_a_list_of_the_kernels_is_read(listed: str, cores: set[int]) -> None:
    assert cores_of(listed) == cores


def test_a_gpus_own_cores_are_those_of_its_place_on_the_bus(tmp_path: Path) -> None:
    (tmp_path / "0000:17:00.0").mkdir()
    (tmp_path / "0000:17:00.0" / "local_cpulist").write_text("0-1,4\n")
    assert board("0000:17:00.0").local_cores(tmp_path) == {0, 1, 4}
    assert board("0000:18:00.0").local_cores(tmp_path) == set()


def test_a_list_that_is_no_list_tells_no_cores(tmp_path: Path) -> None:
    (tmp_path / "0000:17:00.0").mkdir()
    (tmp_path / "0000:17:00.0" / "local_cpulist").write_text("all of them\n")
    assert board("0000:17:00.0").local_cores(tmp_path) == set()


@pytest.mark.parametrize("bus_id", ["00000000:17:00.0", b"00000000:17:00.0", "00000001:C1:00.0"])
def test_nvmls_bus_address_is_turned_into_the_kernels(bus_id: str | bytes) -> None:
    assert _address(bus_id) in ("0000:17:00.0", "0001:c1:00.0")
