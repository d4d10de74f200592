from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from llmexp.machine import processor

TOLD = "processor\t: 0\nmodel name\t: A CPU: the second\nflags\t\t: fpu avx2\nmodel name\t: Another\n"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the kernel tell this of the processor, or nothing where that is empty."""
    monkeypatch.setattr(processor, "CPU_INFO", tmp_path / "cpuinfo")
    return lambda text: bool((tmp_path / "cpuinfo").write_text(text)) if text else None


def test_the_first_processors_name_and_instructions_are_this_machines(told):
    told(TOLD)
    assert processor.model() == "A CPU: the second"
    assert processor.instruction_sets() == {"fpu", "avx2"}


def test_without_the_kernels_file_the_system_names_it_and_its_instructions_are_unknown(told, monkeypatch):
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert (processor.model(), processor.instruction_sets(), processor.compiled_for()) == ("arm", set(), "armarm64")
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert processor.model() is None


@pytest.mark.parametrize(
    ("flags", "native"),
    [("flags : avx512_bf16", True), ("flags : amx_bf16", True), ("Features : bf16", True), ("flags : avx2", False)],
)
def test_bf16_is_multiplied_by_instructions_of_x86_or_arm(told, flags, native):
    told(f"{flags}\n")
    assert processor.multiplies_bf16() is native


def test_what_is_compiled_for_a_processor_depends_on_models_and_instructions_alone(told):
    told(TOLD + "cpu MHz : 2000\n")
    first = processor.compiled_for()
    told(TOLD + "cpu MHz : 3000\n")
    assert (
        processor.compiled_for()
        == first
        == "flags\t\t: fpu avx2\nmodel name\t: A CPU: the second\nmodel name\t: Another"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="no process is bound to cores elsewhere")
def test_the_cores_that_a_process_is_bound_to_are_those_that_it_may_use(monkeypatch):
    assert processor.bound_cores() == len(psutil.Process().cpu_affinity())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 7})
    assert (processor.bound_cores(), processor.usable_cores()) == (3, 3)


def test_a_process_that_is_bound_to_none_may_use_all(monkeypatch):
    monkeypatch.setattr(processor, "bound_cores", lambda: None)
    assert processor.usable_cores() == processor.logical_cores() == psutil.cpu_count()


@pytest.mark.parametrize(("text", "governor"), [("performance\n", "performance"), (None, None)])
def test_the_governor_is_told_or_not_shown(tmp_path, monkeypatch, text, governor):
    if text:
        (tmp_path / "scaling_governor").write_text(text)
    monkeypatch.setattr(processor, "GOVERNOR", tmp_path / "scaling_governor")
    assert processor.governor() == governor


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int, str, str], None]:
    """Let the kernel tell of a core's cache: its index and level, its size, and the cores that share it."""
    monkeypatch.setattr(processor, "CORES", tmp_path)

    def write(core: int, level: int, size: str, shared: str) -> None:
        folder = tmp_path / f"cpu{core}" / "cache" / f"index{level}"
        folder.mkdir(parents=True)
        for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared)):
            (folder / name).write_text(f"{text}\n")

    return write


def test_the_last_caches_of_all_usable_cores_count_each_once(caches, monkeypatch):
    for core, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        caches(core, 2, "1024K", str(core))
        caches(core, 3, "32M", shared)
    for cores, wanted in (({0, 1}, 32), ({0, 2}, 64), ({0, 1, 2, 3}, 64)):
        monkeypatch.setattr(processor, "bound_core_numbers", lambda cores=cores: cores)
        assert processor.last_cache_bytes() == wanted * 2**20


def test_the_last_cache_is_unknown_where_the_kernel_does_not_tell_it(caches, monkeypatch):
    monkeypatch.setattr(processor, "bound_core_numbers", lambda: {0})
    assert processor.last_cache_bytes() is None
    caches(0, 2, "2048K", "0")
    assert processor.last_cache_bytes() == 2**21
