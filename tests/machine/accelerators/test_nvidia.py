from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmexp.machine.accelerators import nvidia
from llmexp.machine.accelerators.gpu import MIB, Gpu
from llmexp.machine.accelerators.here import gpus, vendor, visible_gpus
from llmexp.machine.accelerators.nvidia import Nvidia, driver_cuda, listed, mig_devices

SMI = "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    {} |"


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for asked in (listed, mig_devices):
        asked.cache_clear()
    yield
    for asked in (listed, mig_devices):
        asked.cache_clear()


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put an nvidia-smi first on the path that answers with these lines."""

    def install(lines: str) -> None:
        script = tmp_path / "nvidia-smi"
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


def test_a_gpu_is_what_the_driver_says(driver):
    driver("0, GPU-a, NVIDIA H200, 143771, 700.00, 570.86.15\n1, GPU-b, NVIDIA GB10, [N/A], [N/A], 570.86.15")
    first, second = gpus()
    assert first == Gpu("0", "GPU-a", "NVIDIA H200", "143771", "700.00", "570.86.15")
    assert first.memory_bytes == 143771 * MIB
    assert second.memory_bytes is None


@pytest.mark.parametrize("answer", ["", "No devices were found"])
def test_a_driver_without_gpus_has_none(driver, answer):
    driver(answer)
    assert gpus() == ()
    assert visible_gpus() == []


@pytest.mark.parametrize(
    ("variable", "indices"), [(None, "012"), ("2,0", "20"), ("GPU-1,9,0", "1"), ("", ""), ("-1", "")]
)
def test_cuda_visible_devices_chooses_and_orders(driver, monkeypatch, variable, indices):
    driver("\n".join(f"{index}, GPU-{index}a, NVIDIA H200, 143771, 700.00, 570.86.15" for index in range(3)))
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert "".join(gpu.index for gpu in visible_gpus()) == indices


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        (None, ["NVIDIA H100 80GB HBM3 MIG 3g.40gb"]),
        ("MIG-c", ["NVIDIA H100 80GB HBM3 MIG 1g.10gb"]),
        ("0", ["NVIDIA H100 80GB HBM3 MIG 3g.40gb"]),
        ("1", ["NVIDIA H100 80GB HBM3"]),
        ("MIG-x", []),
    ],
)
def test_of_a_divided_gpu_one_part_is_seen_and_it_is_no_cpu(monkeypatch, variable, names):
    lines = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)
  MIG 3g.40gb     Device  0: (UUID: MIG-b)
  MIG 1g.10gb     Device  1: (UUID: MIG-c)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-d)"""
    whole = "\n".join(
        f"{index}, {uuid}, NVIDIA H100 80GB HBM3, 81559, 700.00, 580.65.06"
        for index, uuid in enumerate(("GPU-a", "GPU-d"))
    )
    monkeypatch.setattr(nvidia, "_nvidia_smi", lambda *words: lines if words == ("-L",) else whole)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    seen = visible_gpus()
    assert [gpu.name for gpu in seen] == names
    assert [gpu.memory_bytes for gpu in seen if "MIG" in gpu.name] == [None] * sum("MIG" in name for name in names)


@pytest.mark.parametrize(
    ("links", "bridged"),
    [
        ("GPU 0: x\n  Link 0: 14.062 GB/s", True),
        ("GPU 0: x", False),
        ("GPU 0: x\n  Link 0: <inactive>\n  Link 1: <inactive>", False),
        ("GPU 0: x\n  Link 0: <inactive>\n  Link 1: 14.062 GB/s", True),
    ],
)
def test_links_are_told_by_the_driver(driver, links, bridged):
    driver(links)
    assert Nvidia().linked() is bridged


@pytest.mark.parametrize(
    ("answer", "architectures"),
    [("9.0\n8.6\n", ["sm_90", "sm_86"]), ("12.1\n[N/A]\n", ["sm_121", None]), ("", [None, None])],
)
def test_architectures_are_the_drivers_compute_capabilities(monkeypatch, answer, architectures):
    lines = "\n".join(f"{index}, GPU-{index}, NVIDIA H200, 143771, 700.00, 570.86.15" for index in range(2))
    monkeypatch.setattr(nvidia, "_nvidia_smi", lambda *words: answer if "compute_cap" in words[0] else lines)
    assert [gpu.architecture for gpu in gpus()] == architectures
    assert vendor().name == "NVIDIA"


def test_a_chosen_gpu_is_named_by_its_uuid(driver, monkeypatch):
    driver("\n".join(f"{index}, GPU-{index}a, NVIDIA H200, 143771, 700.00, 570.86.15" for index in range(3)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert [gpu.handle for gpu in visible_gpus()] == ["GPU-2a", "GPU-0a"]


@pytest.mark.parametrize("cell", ["CUDA Version: 13.0", "CUDA UMD Version: 13.0"])
def test_nvidia_smi_names_the_drivers_cuda(tmp_path, monkeypatch, cell):
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\necho '{SMI.format(cell)}'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver_cuda() == (13, 0)
    fake.write_text("#!/bin/sh\necho 'no devices were found'; exit 6\n")
    assert driver_cuda() is None
    fake.unlink()
    assert driver_cuda() is None
