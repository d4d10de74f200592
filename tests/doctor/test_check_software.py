from __future__ import annotations

import sys
from pathlib import Path

import pytest

from llmexp.doctor import check_software as module
from llmexp.doctor.check_software import (
    check_compiler,
    check_engine,
    check_libraries,
    check_optional,
    check_python,
    check_torch,
    judge_build,
    judge_rocm,
    outside_ranges,
    pinned_versions,
    torch_version,
)
from llmexp.record.installed import Installed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("built", "driver", "level", "says"),
    [
        (None, None, "ok", "without CUDA"),
        (None, (12, 4), "fail", "TORCH=cuda"),
        ((13, 0), None, "warn", "only hardware=cpu"),
        ((13, 0), (13, 0), "ok", "the driver serves 13.0"),
        ((12, 6), (13, 0), "ok", "the driver serves 13.0"),
        ((12, 8), (12, 4), "warn", "a newer driver or an older build"),
        ((13, 0), (12, 9), "fail", "the driver serves 12.9 at most"),
    ],
)
def test_torchs_cuda_is_held_against_the_drivers(built, driver, level, says):
    found, said = judge_build(built, driver)
    assert found == level
    assert says in said


@pytest.mark.parametrize(
    ("line", "cuda"),
    [("cuda: Optional[str] = '13.0'", (13, 0)), ("cuda = '12.4'", (12, 4)), ("cuda: Optional[str] = None", None)],
)
def test_torchs_version_file_names_its_cuda(tmp_path, monkeypatch, line, cuda):
    class Installed:
        def locate_file(self, path):
            return tmp_path / path

    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.11.0'\n{line}\nhip: Optional[str] = None\n")
    monkeypatch.setattr(module, "distribution", lambda name: Installed())
    assert torch_version("cuda") == cuda
    assert torch_version("hip") is None


def test_amds_gpus_need_a_torch_for_rocm():
    assert judge_rocm(None)[0] == "fail"
    assert judge_rocm((6, 4)) == ("ok", "built for ROCm with HIP 6.4; llmexp was never run on AMD's GPUs")


def test_torch_that_is_missing_is_named_with_the_remedy(monkeypatch):
    def missing(name):
        raise module.PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", missing)
    assert (check_torch().level, "pip install torch" in check_torch().says) == ("warn", True)


@pytest.mark.parametrize(("version", "level"), [((3, 10), "fail"), ((3, 11), "ok"), ((3, 12), "ok"), ((3, 13), "warn")])
def test_the_interpreters_version(monkeypatch, version, level):
    monkeypatch.setattr(module, "OLDEST_PYTHON", (3, 11 + sys.version_info.minor - version[1]))
    monkeypatch.setattr(module, "NEWEST_PYTHON", (3, 12 + sys.version_info.minor - version[1]))
    assert check_python().level == level


def test_what_an_engines_ranks_lack_is_named(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert check_engine("deepspeed").level == "warn"
    assert "needs torch, deepspeed, transformers, accelerate" in check_engine("deepspeed").says
    assert "bitsandbytes (no Q)" in check_optional().says


def test_the_tested_set_is_the_projects_own():
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    assert [f"{name}=={version}" for name, version in pinned_versions().items()] == pinned


def test_other_versions_than_the_tested_are_named_and_a_build_of_the_same_is_not(monkeypatch):
    monkeypatch.setattr(module, "outside_ranges", lambda: [])
    monkeypatch.setattr(module, "pinned_versions", lambda: {"torch": "2.13.0", "numpy": "2.4.6"})
    monkeypatch.setattr(module, "versions", lambda names: {"torch": "2.13.0+cu130", "numpy": "2.4.6", "llmexp": "0.1"})
    assert check_libraries() == module.Finding("ok", "libraries", "as tested: torch, numpy")
    monkeypatch.setattr(module, "versions", lambda names: {"torch": "2.11.0+cu130", "numpy": "2.4.6"})
    assert check_libraries().level == "warn"
    assert "not as tested: torch 2.11.0+cu130 (tested 2.13.0);" in check_libraries().says


def test_a_version_that_llmexp_does_not_take_fails(monkeypatch):
    monkeypatch.setattr(
        module,
        "requires",
        lambda name: ["psutil>=5.9", "transformers<6,>=5.0; extra == 'train'", "pytest>=8; extra == 'dev'"],
    )
    monkeypatch.setattr(
        module,
        "versions",
        lambda names: {name: {"psutil": "7.0", "transformers": "4.57", "pytest": "1.0"}[name] for name in names},
    )
    assert outside_ranges() == [("transformers", "4.57", "<6,>=5.0")]
    assert check_libraries().level == "fail"


def test_the_compiler_is_asked_for_what_the_device_needs(monkeypatch):
    def says(gpu, **found):
        monkeypatch.setattr(module, "look", lambda: Installed(**found))
        return check_compiler(gpu).says

    all_but_nvcc = {"compiler": "c++", "ninja": "/bin/ninja", "python_header": "/include/Python.h", "c_compiler": "gcc"}
    assert says(None, **all_but_nvcc) == "c++, /bin/ninja, /include/Python.h"
    remedy = "install it for deepspeed_adamw and adamw_cpuadam; optimizer=adamw without C compiles nothing"
    assert says("NVIDIA", **all_but_nvcc) == f"no nvcc (CUDA toolkit): {remedy}"
    assert says("AMD", **all_but_nvcc) == f"no hipcc (ROCm): {remedy}"
    assert says("AMD", **all_but_nvcc, hipcc="/opt/rocm/bin/hipcc").startswith("c++, ")
    assert "no Python.h (python3-dev): install it for C (torch.compile); " in says(
        None, compiler="c++", ninja="/bin/ninja"
    )
    assert "install it for deepspeed_adamw and adamw_cpuadam, C (torch.compile); " in says(
        None, ninja="/bin/ninja", python_header="/Python.h"
    )
