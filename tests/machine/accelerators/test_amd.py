"""AMD's GPUs as amd-smi and amdsmi tell of them: answers of real tools, cut to what is read."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from llmexp.machine import energy_counters
from llmexp.machine.accelerators import amd_board, here
from llmexp.machine.accelerators.amd import listed
from llmexp.machine.accelerators.gpu import MIB
from llmexp.machine.gpu_load import GpuLoad, clock_and_temperature

# ROCm 6.4 on an MI210.
MI210 = {
    "gpu": 0,
    "asic": {"market_name": "AMD Instinct MI210", "num_compute_units": 104, "target_graphics_version": "gfx90a"},
    "limit": {"max_power": {"value": 300, "unit": "W"}, "socket_power": {"value": 300, "unit": "W"}},
    "driver": {"name": "amdgpu", "version": "6.12.12"},
    "vram": {"type": "HBM", "size": {"value": 65520, "unit": "MB"}},
}
# ROCm 7 on an MI300X; the newer layout of limits.
MI300X = {
    "gpu": 1,
    "asic": {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"},
    "limit": {"ppt0": {"socket_power_limit": {"value": 750, "unit": "W"}}},
    "driver": {"version": "6.16.13"},
    "vram": {"size": {"value": 196592, "unit": "MB"}},
}
UUIDS = ["7eff74a0-0000-1000-808f-7e20764e2714", "b6ff74a1-0000-1000-80ae-7c8cefe1f084"]
LIST = [{"gpu": index, "bdf": f"000{index}:01:00.0", "uuid": uuid} for index, uuid in enumerate(UUIDS)]


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    listed.cache_clear()
    amd_board.library.cache_clear()
    yield
    listed.cache_clear()
    amd_board.library.cache_clear()


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put an amd-smi on the path that answers these two commands."""

    def install(static: Any, told: Any = LIST, warning: str = "") -> None:
        for name, answer in (("static", static), ("list", told)):
            (tmp_path / name).write_text(answer if isinstance(answer, str) else json.dumps(answer))
        script = tmp_path / "amd-smi"
        script.write_text(f'#!/bin/sh\necho "{warning}"\ncat "{tmp_path}/$1"\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_gpu_is_what_amd_smi_says(tool: Callable[..., None], wrapped: bool) -> None:
    tool({"gpu_data": [MI210, MI300X]} if wrapped else [MI210, MI300X], warning="WARNING: not in the render group")
    assert here.vendor().name == "AMD"
    first, second = here.gpus()
    assert (first.name, first.uuid, first.architecture) == ("AMD Instinct MI210", UUIDS[0], "gfx90a")
    assert (first.memory_bytes, first.power_limit_watts, first.driver_version) == (65520 * MIB, "300", "6.12.12")
    assert (second.index, second.memory_bytes, second.power_limit_watts) == ("1", 196592 * MIB, "750")


@pytest.mark.parametrize("answer", ["", "no such command", "[]", '{"gpu_data": []}', "[1, 2]", '{"gpu_data": 3'])
def test_a_tool_that_shows_nothing_is_no_gpu(tool: Callable[..., None], answer: str) -> None:
    tool(answer)
    assert here.gpus() == ()


def test_what_a_driver_does_not_tell_is_left_open(tool: Callable[..., None]) -> None:
    tool([{"gpu": 0, "asic": {"market_name": "N/A"}, "vram": {"size": "N/A"}, "limit": "N/A"}], told="[]")
    (gpu,) = here.gpus()
    assert (gpu.memory_bytes, gpu.power_limit_watts, gpu.architecture, gpu.uuid) == (None, "", None, "")


@pytest.mark.parametrize(
    ("variables", "indices", "handles"),
    [
        ({}, "01", ["0", "1"]),
        ({"HIP_VISIBLE_DEVICES": "1"}, "1", ["1"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, "10", ["1", "0"]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, "1", ["0"]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, "1", ["0"]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, "", []),
        ({"HIP_VISIBLE_DEVICES": ""}, "", []),
    ],
)
def test_rocms_variables_choose_one_after_the_other(
    tool: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    indices: str,
    handles: list[str],
) -> None:
    tool([MI210, MI300X])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    seen = here.visible_gpus()
    assert "".join(gpu.index for gpu in seen) == indices
    # A process that is given one of them by HIP_VISIBLE_DEVICES counts among what ROCR_VISIBLE_DEVICES leaves.
    assert [gpu.handle for gpu in seen] == handles


class FakeAmdsmi(ModuleType):
    """Two boards with the keys and units of amdsmi 7: the second one tells N/A or raises."""

    class AmdSmiException(Exception):  # noqa: N818
        pass

    AmdSmiClkType = SimpleNamespace(GFX=1, MEM=5)
    AmdSmiTemperatureType, AmdSmiTemperatureMetric = SimpleNamespace(HOTSPOT=1), SimpleNamespace(CURRENT=0)

    def __init__(self) -> None:
        super().__init__("amdsmi")
        self.amdsmi_get_gpu_activity = lambda board: {"gfx_activity": self._told(board, 87)}
        self.amdsmi_get_gpu_vram_usage = lambda board: {"vram_total": 196592, "vram_used": 49148}
        self.amdsmi_get_power_info = lambda board: {
            "current_socket_power": "N/A",
            "average_socket_power": self._told(board, 410),
        }
        self.amdsmi_get_power_cap_info = lambda board: self._raised(
            board, {"power_cap": 750_000_000, "default_power_cap": 700_000_000}
        )
        self.amdsmi_get_energy_count = lambda board: self._raised(
            board, {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1}
        )
        self.amdsmi_get_clock_info = lambda board, kind: {
            "clk": self._told(board, {1: 2100, 5: 1300}[kind]),
            "max_clk": self._told(board, 2105),
        }
        self.amdsmi_get_temp_metric = lambda board, kind, metric: self._raised(board, 71)
        self.amdsmi_get_gpu_process_list = lambda board: self._raised(board, [{"pid": os.getpid()}])
        self.amdsmi_get_processor_handles = lambda: [0, 1]
        self.amdsmi_get_gpu_device_uuid = lambda board: UUIDS[board]
        self.amdsmi_init = lambda: None

    @staticmethod
    def _told(board: int, value: Any) -> Any:
        return "N/A" if board else value

    def _raised(self, board: int, value: Any) -> Any:
        if board:
            raise self.AmdSmiException("AMDSMI_STATUS_NOT_SUPPORTED")
        return value


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdsmi())
    monkeypatch.setattr(amd_board, "DRIVER", tmp_path)


@pytest.mark.usefixtures("library")
def test_boards_tell_load_power_clocks_and_processes_as_far_as_they_can() -> None:
    assert GpuLoad().sample(own={os.getpid()}) == {
        "gpu_0_utilization_percentage": 87,
        "gpu_0_memory_usage_megabytes": pytest.approx(51535, abs=1),
        "gpu_0_memory_usage_percentage": 25,
        "gpu_0_power_usage_watts": 410,
        "gpu_0_power_usage_percentage": pytest.approx(54.7),
        "gpu_0_power_cap_watts": 750,
        "gpu_0_power_cap_default_watts": 700,
        "gpu_0_sm_clock_megahertz": 2100,
        "gpu_0_sm_clock_max_megahertz": 2105,
        "gpu_0_memory_clock_megahertz": 1300,
        "gpu_0_temperature_celsius": 71,
        "gpu_0_own_processes": 1,
        "gpu_0_other_processes": 0,
        "gpu_1_memory_usage_megabytes": pytest.approx(51535, abs=1),
        "gpu_1_memory_usage_percentage": 25,
    }


@pytest.mark.usefixtures("library")
def test_a_board_is_found_by_its_uuid_and_counts_joules() -> None:
    (counter,) = energy_counters.gpu_counters(UUIDS[0]) or []
    assert counter.read() == pytest.approx(30.6)
    assert energy_counters.gpu_counters(UUIDS[1]) is None
    assert clock_and_temperature(UUIDS[0]) == {"sm_clock_megahertz": 2100, "temperature_celsius": 71}
    assert here.board("GPU-another") is None


def test_without_amds_driver_its_library_is_not_touched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Importing it prints and raises KeyError where ROCm is not installed."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdsmi())
    monkeypatch.setattr(amd_board, "DRIVER", tmp_path / "kfd")
    assert here.boards() == []
