from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.launch.detect import detect
from llmexp.machine.accelerators.gpu import MIB
from llmexp.machine.accelerators.nvidia import listed, mig_devices
from llmexp.schema import HardwareConfig


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for asked in (detect, listed, mig_devices):
        asked.cache_clear()
    yield
    for asked in (detect, listed, mig_devices):
        asked.cache_clear()


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put an nvidia-smi on the path that answers with these GPUs and links."""

    def install(*names: str, links: str = "", exit_code: int = 0) -> None:
        lines = [f"{index}, GPU-{index}a, {name}, 24576, 350.00, 580.65.06" for index, name in enumerate(names)]
        script = tmp_path / "nvidia-smi"
        body = f"cat <<'END'\n{links}\nEND\nelse\ncat <<'END'\n" + "\n".join(lines) + "\nEND\nfi\n"
        script.write_text(f'#!/bin/sh\nif [ "$1" = nvlink ]; then\n{body}exit {exit_code}\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


def test_no_driver_is_cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for cores, devices in [(1, 1), (2, 2), (64, 2), (None, 1)]:
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        detect.cache_clear()
        assert (detect().hardware, detect().devices) == ("cpu", devices)


def test_a_driver_that_fails_is_cpu(driver):
    driver("NVIDIA H200", exit_code=9)
    assert detect().hardware == "cpu"


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("NVIDIA A800-SXM4-80GB", "a800"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100_40gb"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 4090 D", "gpu"),
        ("NVIDIA H200 NVL", "gpu"),
        ("Tesla V100", "gpu"),
    ],
)
def test_the_drivers_name_finds_the_file(name, hardware, driver):
    driver(name, name)
    assert (detect().hardware, detect().devices) == (hardware, 2)


@pytest.mark.parametrize(
    ("links", "hardware"), [("", "rtx3090"), ("GPU 0: x\n  Link 0: 14.062 GB/s", "rtx3090_nvlink")]
)
def test_bridges_tell_the_two_rtx3090_apart(links, hardware, driver):
    driver("NVIDIA GeForce RTX 3090", links=links)
    assert detect().hardware == hardware


@pytest.mark.parametrize(("variable", "devices"), [("2", 1), ("0,1", 2), ("GPU-1,GPU-3a", 2), ("1,9,2", 1)])
def test_only_visible_gpus_count(variable, devices, driver, monkeypatch):
    driver(*["NVIDIA H200"] * 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert (detect().hardware, detect().devices) == ("h200", devices)


@pytest.mark.parametrize("variable", ["", "-1"])
def test_no_visible_gpu_is_cpu(variable, driver, monkeypatch):
    driver("NVIDIA H200")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert detect().hardware == "cpu"


def auto() -> HardwareConfig:
    (job,) = jobs_of(run_parser().parse_intermixed_args(["hardware=auto"]))
    return job.plan.config.hardware


def test_auto_composes_from_what_was_found(driver):
    driver(*["NVIDIA GeForce RTX 4090"] * 3)
    config = auto()
    assert (config.name, config.devices_per_node) == ("rtx4090", 3)
    assert (config.environment, config.serving_environment) == ({}, {"NCCL_P2P_DISABLE": "1"})


def test_a_file_of_another_package_describes_a_gpu_too(driver, tmp_path, monkeypatch):
    (tmp_path / "guest" / "hardware").mkdir(parents=True)
    (tmp_path / "guest" / "hardware" / "zeta.yaml").write_text("device_names: [NVIDIA Titan Zeta]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("llmexp.launch.detect.conf_packages", lambda: ("guest",))
    driver("NVIDIA Titan Zeta")
    assert detect().hardware == "zeta"


def test_a_gpu_without_a_file_has_a_name_and_memory_and_no_peaks(driver):
    driver("NVIDIA Titan Zeta", "NVIDIA Titan Zeta")
    config = auto()
    assert (config.name, config.device_names, config.devices_per_node) == ("titan_zeta", ("NVIDIA Titan Zeta",), 2)
    assert config.memory_bytes == 24576 * MIB
    assert config.peak_flops_per_s == {}
