from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest

from llmexp.launch import preflight as module
from llmexp.launch.detect import Detected
from llmexp.launch.ending import Ending
from llmexp.launch.preflight import preflight
from llmexp.machine.accelerators import nvidia
from llmexp.machine.accelerators.gpu import Gpu
from llmexp.record.digits import GIB
from llmexp.record.installed import installs
from llmexp.record.result import RunStatus
from llmexp.record.samples import StateBytes
from llmexp.record.skip import Skip, SkipCode
from llmexp.tasks.engine import Engine
from llmexp.training.plan.memory import MemoryEstimate

LAPTOP = Detected("cpu", "cpu", "", 2, None)
FOUR_A800 = Detected("a800", "a800", "NVIDIA A800-SXM4-80GB", 4, 80 * GIB)
A800 = {
    "name": "a800",
    "device": "cuda",
    "device_names": ("NVIDIA A800-SXM4-80GB", "NVIDIA A800-SXM4-40GB"),
    "devices_per_node": 8,
    "memory_bytes": 80 * GIB,
}


@pytest.fixture(autouse=True)
def _host_of_16_gib(monkeypatch):
    monkeypatch.setattr(module, "host_memory_bytes", lambda: 16 * GIB)


@pytest.fixture
def make(make_plan):
    def plan(
        device_gib: float = 1,
        host_gib: float = 0,
        hardware: dict | None = None,
        force: bool = False,
        skip: str | None = None,
    ):
        made = make_plan()
        nothing = StateBytes()
        memory = MemoryEstimate(
            parameters=StateBytes(device=int(device_gib * GIB), host=int(host_gib * GIB)),
            gradients=nothing,
            optimizer=nothing,
            arithmetic="sum",
        )
        config = made.config.model_copy(
            update={"hardware": made.config.hardware.model_copy(update=hardware or {}), "force": force}
        )
        return made.model_copy(update={"memory": memory, "config": config, "skip": skip})

    return plan


def test_what_fits_starts(make):
    assert preflight(make(device_gib=7.9), LAPTOP) is None
    assert preflight(make(device_gib=79, hardware=A800), FOUR_A800) is None


def test_an_unsupported_combination_is_skipped_first(make):
    skip = Skip(code=SkipCode.UNSUPPORTED, reason="not with this engine")
    ending = preflight(make(device_gib=1000, skip=skip), LAPTOP)
    assert ending == Ending(RunStatus.SKIPPED, "not with this engine", skip=SkipCode.UNSUPPORTED)


def test_host_memory_counts_all_ranks_on_cpu(make):
    ending = preflight(make(device_gib=8.5), LAPTOP)
    assert ending.status is RunStatus.SKIPPED
    assert "needs at least 17.0 GiB of host memory for 2 ranks on a node, which has 16.0 GiB: sum" in ending.reason
    assert "force=true" in ending.reason


def test_force_starts_it_all_the_same(make):
    assert preflight(make(device_gib=8.5, force=True), LAPTOP) is None


def test_device_memory_is_the_nodes_own(make):
    small = Detected("a800", "a800", "NVIDIA A800-SXM4-40GB", 4, 40 * GIB)
    ending = preflight(make(device_gib=50, hardware=A800), small)
    assert ending.status is RunStatus.SKIPPED
    assert "needs at least 50.0 GiB on the device, which has 40.0 GiB" in ending.reason


def test_offloaded_state_is_held_against_the_host(make):
    assert preflight(make(device_gib=1, host_gib=9, hardware=A800), FOUR_A800).status is RunStatus.SKIPPED


def test_other_nodes_hardware_is_a_failure_that_names_both(make):
    ending = preflight(make(hardware=A800), Detected("h200", "h200", "NVIDIA H200", 8, 140 * GIB))
    assert ending.status is RunStatus.FAILED
    assert (
        ending.reason == "hardware=a800 does not match this node: it needs 2 x NVIDIA A800-SXM4-80GB "
        "or NVIDIA A800-SXM4-40GB, and this node has 8 x NVIDIA H200"
    )


RTX3090 = {
    "name": "rtx3090",
    "device": "cuda",
    "device_names": ("NVIDIA GeForce RTX 3090",),
    "interconnect": "PCIe 4.0",
}


@pytest.mark.parametrize(
    ("changed", "links", "said"),
    [
        ({}, "", ""),
        (
            {},
            "Link 0: 14 GB/s",
            "has no NVLink, and GPUs here are linked by it: set hardware=rtx3090_nvlink, or switch",
        ),
        ({"environment": {"NCCL_P2P_DISABLE": "1"}}, "Link 0: 14 GB/s", ""),
        ({"interconnect": "NVLink 3"}, "Link 0: 14 GB/s", ""),
        ({"interconnect": None}, "Link 0: 14 GB/s", ""),
        ({"interconnect": "NVLink 3"}, "", "has NVLink, and no GPU here is linked by it: set hardware=rtx3090"),
    ],
)
def test_gpus_that_are_linked_otherwise_are_a_failure(changed, links, said, make, monkeypatch):
    made_by = SimpleNamespace(linked=lambda: bool(links), chooses="CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(module, "vendor", lambda: made_by)
    plan, node = make(hardware=A800 | RTX3090 | changed), Detected("x", "x", "NVIDIA GeForce RTX 3090", 4, 24 * GIB)
    assert (module.other_links(plan, node) or "").removeprefix("hardware=rtx3090 ").startswith(said)
    assert bool(module.other_links(plan, node)) == bool(said)
    ending = preflight(plan, node)
    assert (ending.reason if ending else None) == module.other_links(plan, node)
    assert module.other_links(plan.model_copy(update={"devices": 1}), node) is None
    served = plan.config.model_copy(update={"task": SimpleNamespace(name="serve")})
    served.hardware.serving_environment["NCCL_P2P_DISABLE"] = "1"
    said_when_served = module.other_links(plan.model_copy(update={"config": served}), node)
    assert said_when_served == (None if links else module.other_links(plan, node))
    assert module.other_links(plan, LAPTOP) is module.other_links(make(hardware=A800), FOUR_A800) is None


def test_no_gpu_is_a_failure(make):
    ending = preflight(make(hardware=A800), LAPTOP)
    assert ending.status is RunStatus.FAILED
    assert ending.reason.endswith("no GPU is visible here")


def test_too_few_gpus_are_a_failure(make):
    one = Detected("a800", "a800", "NVIDIA A800-SXM4-80GB", 1, 80 * GIB)
    assert preflight(make(hardware=A800), one).reason.endswith("this node has 1 x NVIDIA A800-SXM4-80GB")


def test_memory_short_on_the_hardware_named_is_a_skip_even_where_it_is_not(make):
    assert preflight(make(device_gib=81, hardware=A800), LAPTOP).status is RunStatus.SKIPPED


def test_hosts_memory_elsewhere_is_not_this_ones(make):
    assert preflight(make(device_gib=1, host_gib=9, hardware=A800), LAPTOP).status is RunStatus.FAILED


def test_unknown_device_memory_is_taken_to_suffice(make):
    gpu = {**A800, "memory_bytes": None}
    assert (
        preflight(make(device_gib=500, hardware=gpu), Detected("gpu", "a800", "NVIDIA A800-SXM4-80GB", 2, None)) is None
    )


def test_what_cannot_be_built_here_is_skipped(make, monkeypatch):
    monkeypatch.setattr(Engine, "unbuildable", lambda self, plan: "no compiler here")
    assert preflight(make(), LAPTOP) == Ending(RunStatus.SKIPPED, "no compiler here", skip=SkipCode.SOFTWARE)


def test_c_is_skipped_without_a_compiler_in_one_line(tiny_plan, monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    assert preflight(tiny_plan("F+C"), LAPTOP) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert preflight(tiny_plan("F"), LAPTOP) is None
    reason = "C: torch.compile compiles in the ranks, and this machine has no C++ compiler (c++, g++, clang++)"
    assert preflight(tiny_plan("F+C"), LAPTOP) == Ending(RunStatus.SKIPPED, reason, skip=SkipCode.SOFTWARE)


def test_a_machine_without_the_engines_libraries_says_how_to_get_them(make, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ending = preflight(make(), LAPTOP)
    assert ending.status is RunStatus.FAILED
    assert (
        ending.reason
        == f"engine=scripted with method=Naive, data=synthetic needs psutil, pydantic: {installs('train')}, torch first"
    )


@pytest.mark.parametrize(
    ("method", "data", "lacking"),
    [("Q", "synthetic", "bitsandbytes"), ("F", "hf", "datasets"), ("Z3", "synthetic", "")],
)
def test_a_library_that_only_some_runs_ask_for_is_missed_only_by_them(tiny_plan, monkeypatch, method, data, lacking):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("bitsandbytes", "datasets") else name
    )
    section = {"name": data, "seq_len": 64} | ({"path": "org/set"} if data == "hf" else {})
    ending = preflight(tiny_plan(method, data=section), LAPTOP)
    assert (ending.reason if ending else "") == (
        lacking
        and f"engine=deepspeed with method={method}, data={data} needs {lacking}: {installs('train')}, torch first"
    )


def test_without_megatron_core_the_line_says_how_to_get_it(tiny_plan, monkeypatch):
    def find(name):
        if name == "megatron.core":
            raise ModuleNotFoundError("No module named 'megatron'", name="megatron")
        return name

    monkeypatch.setattr(importlib.util, "find_spec", find)
    ending = preflight(tiny_plan("Naive", engine__name="megatron"), LAPTOP)
    assert ending.status is RunStatus.FAILED
    assert ending.reason.endswith(f"needs megatron.core: {installs('train,megatron')}, torch first")


@pytest.mark.parametrize(
    ("variable", "ranks", "refused"),
    [
        (None, 2, False),
        ("0,1", 2, False),
        ("0,1,5", 2, False),
        ("GPU-0,GPU-1", 2, False),
        ("5,6", 2, True),
        ("1,0", 2, True),
    ],
)
def test_deepspeeds_launcher_is_refused_gpus_that_it_would_not_take(make, monkeypatch, variable, ranks, refused):
    eight = tuple(Gpu(str(index), f"GPU-{index}", "", "", "", "") for index in range(8))
    monkeypatch.setattr(nvidia, "listed", lambda: eight)
    monkeypatch.setattr(nvidia, "mig_devices", tuple)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    made = make(device_gib=1, hardware=A800)
    for launcher in ("spawn", "deepspeed"):
        engine = made.config.engine.model_copy(update={"launcher": launcher})
        config = made.config.model_copy(update={"engine": engine})
        ending = preflight(made.model_copy(update={"config": config, "processes": ranks}), FOUR_A800)
        if refused and launcher == "deepspeed":
            assert ending.status == RunStatus.FAILED
            assert f"ignores CUDA_VISIBLE_DEVICES={variable} and takes this node's first 2" in ending.reason
        else:
            assert ending is None
