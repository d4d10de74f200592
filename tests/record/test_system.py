import json
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from llmexp.record.system import SystemSampler


def _lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class FakeNvml(ModuleType):
    """Two GPUs: the second one tells nothing but its memory."""

    class NVMLError(Exception):
        pass

    def __init__(self, works: bool = True) -> None:
        super().__init__("pynvml")
        self.works, self.shut_down = works, False

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.works:
            raise self.NVMLError("driver not loaded")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut_down = True

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


def test_a_short_block_still_leaves_a_line_under_mlflows_names(tmp_path):
    began_s = time.time()
    with SystemSampler(tmp_path / "system.jsonl", interval_s=60):
        pass
    [line] = _lines(tmp_path / "system.jsonl")
    assert began_s - 1 <= line["at_s"] <= time.time() + 1
    assert line["system_memory_usage_megabytes"] > 0
    assert 0 <= line["cpu_utilization_percentage"] <= 100


def test_the_thread_ends_with_the_block_and_costs_next_to_nothing(tmp_path):
    began_s = time.process_time()
    with SystemSampler(tmp_path / "system.jsonl", interval_s=0.001):
        while not (tmp_path / "system.jsonl").exists() or len(_lines(tmp_path / "system.jsonl")) < 20:
            threading.Event().wait(0.05)
    samples = len(_lines(tmp_path / "system.jsonl"))
    assert (time.process_time() - began_s) / samples < 0.01
    assert "system-sampler" not in {thread.name for thread in threading.enumerate()}


def test_gpus_are_sampled_and_what_one_cannot_tell_is_left_out(tmp_path, monkeypatch):
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with SystemSampler(tmp_path / "system.jsonl"):
        pass
    [line] = _lines(tmp_path / "system.jsonl")
    gpu = {name: value for name, value in line.items() if name.startswith("gpu_")}
    assert gpu == {
        "gpu_0_utilization_percentage": 97,
        "gpu_0_memory_usage_megabytes": 2000,
        "gpu_0_memory_usage_percentage": 25,
        "gpu_0_power_usage_watts": 350,
        "gpu_0_power_usage_percentage": 50,
        "gpu_1_memory_usage_megabytes": 2000,
        "gpu_1_memory_usage_percentage": 25,
    }
    assert nvml.shut_down


@pytest.mark.parametrize("pynvml", [None, FakeNvml(works=False)], ids=["not installed", "no driver"])
def test_without_nvml_the_host_is_sampled_alone(tmp_path, monkeypatch, pynvml):
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    with SystemSampler(tmp_path / "system.jsonl"):
        pass
    [line] = _lines(tmp_path / "system.jsonl")
    assert not [name for name in line if name.startswith("gpu_")]


def test_a_path_that_cannot_be_written_does_not_stop_the_run(tmp_path):
    with SystemSampler(tmp_path / "no such folder" / "system.jsonl"):
        ran = True
    assert ran
