import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from llmexp.machine.gpu_load import GpuLoad, board_load, clock_and_temperature

NO_PROCESS = 2**22 + 1


class FakeNvml(ModuleType):
    """Two GPUs: the second one tells nothing but its memory."""

    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 0, 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, works: bool = True) -> None:
        super().__init__("pynvml")
        self.works = works

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.works:
            raise self.NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(used=2e9, total=8e9)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        if handle:
            raise self.NVMLError("not supported")
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        if handle:
            raise self.NVMLError("GPU is lost")
        return 350_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:  # noqa: N802
        return 700_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: int) -> int:  # noqa: N802
        return self.told_by_first(handle, 750_000)

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return self.told_by_first(handle, {1: 1980, 2: 3201}[kind])

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return self.told_by_first(handle, {1: 2010}[kind])

    def nvmlDeviceGetMaxCustomerBoostClock(self, handle: int, kind: int) -> int:  # noqa: N802
        return self.told_by_first(handle, {0: 1995}[kind])

    def nvmlDeviceGetApplicationsClock(self, handle: int, kind: int) -> int:  # noqa: N802
        return self.told_by_first(handle, {0: 1500}[kind])

    def nvmlDeviceGetDefaultApplicationsClock(self, handle: int, kind: int) -> int:  # noqa: N802
        return self.told_by_first(handle, {0: 1830}[kind])

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return self.told_by_first(handle, 71)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:  # noqa: N802
        return self.told_by_first(handle, 0x44)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Any:  # noqa: N802
        return self.told_by_first(handle, [SimpleNamespace(pid=pid) for pid in (os.getpid(), os.getppid(), NO_PROCESS)])

    def told_by_first(self, handle: int, value: Any) -> Any:
        if handle:
            raise self.NVMLError("not supported")
        return value


def test_gpus_are_sampled_and_what_one_cannot_tell_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    values = GpuLoad().sample(own={os.getpid()})
    assert values == {
        "gpu_0_utilization_percentage": 97,
        "gpu_0_memory_usage_megabytes": 2000,
        "gpu_0_memory_usage_percentage": 25,
        "gpu_0_power_usage_watts": 350,
        "gpu_0_power_usage_percentage": 50,
        "gpu_0_power_cap_watts": 700,
        "gpu_0_power_cap_default_watts": 750,
        "gpu_0_sm_clock_megahertz": 1980,
        "gpu_0_memory_clock_megahertz": 3201,
        "gpu_0_sm_clock_max_megahertz": 2010,
        "gpu_0_clock_boost_megahertz": 1995,
        "gpu_0_application_clock_megahertz": 1500,
        "gpu_0_application_clock_default_megahertz": 1830,
        "gpu_0_temperature_celsius": 71,
        "gpu_0_throttle_reasons": 0x44,
        "gpu_0_own_processes": 1,
        "gpu_0_other_processes": 1,
        "gpu_1_memory_usage_megabytes": 2000,
        "gpu_1_memory_usage_percentage": 25,
        "gpu_1_power_cap_watts": 700,
    }


def test_a_call_that_pynvml_has_dropped_costs_only_what_it_told(monkeypatch):
    monkeypatch.delattr(FakeNvml, "nvmlDeviceGetApplicationsClock")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    values = GpuLoad().sample(own=set())
    assert "gpu_0_application_clock_megahertz" not in values
    assert values["gpu_0_throttle_reasons"] == 0x44


@pytest.mark.parametrize("pynvml", [None, FakeNvml(works=False)], ids=["not installed", "no driver"])
def test_without_nvml_there_is_nothing_to_sample(monkeypatch, pynvml):
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    assert GpuLoad().sample(own=set()) == {}


class WithBoards(FakeNvml):
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        return {"GPU-first": 0, "GPU-second": 1}[uuid]


@pytest.mark.parametrize(
    ("uuid", "told"),
    [("GPU-first", {"sm_clock_megahertz": 1980.0, "temperature_celsius": 71.0}), ("GPU-second", {})],
)
def test_a_gpu_that_permits_no_reading_tells_nothing_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, uuid: str, told: dict[str, float]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", WithBoards())
    assert clock_and_temperature(uuid) == told


def test_without_a_driver_no_clock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(works=False))
    assert clock_and_temperature("GPU-first") == {}


def test_a_board_tells_memory_power_and_clocks_as_far_as_its_driver_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", WithBoards())
    assert board_load("GPU-first") == {
        "memory_used_bytes": 2e9,
        "power_w": 350.0,
        "sm_clock_megahertz": 1980.0,
        "memory_clock_megahertz": 3201.0,
        "temperature_celsius": 71.0,
    }
    assert board_load("GPU-second") == {"memory_used_bytes": 2e9}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(works=False))
    assert board_load("GPU-first") == {}
