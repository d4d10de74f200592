from __future__ import annotations

import sysconfig

import pytest

from llmexp.launch.compilers import compiler_variables, uncompilable
from llmexp.registry import get_engine


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Make a PATH with these programs alone."""
    for variable in ("CXX", "CC", "TORCHINDUCTOR_CACHE_DIR", "ATEN_CPU_CAPABILITY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def have(*names):
        for name in names:
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)

    return have


def test_the_ranks_take_the_compiler_that_was_found(tools, tiny_plan, monkeypatch):
    tools("clang++")
    assert compiler_variables(tiny_plan("C")) == {"CXX": "clang++"}
    assert compiler_variables(tiny_plan("F")) == {}
    monkeypatch.setenv("CXX", "/opt/g++-13")
    assert compiler_variables(tiny_plan("C")) == {"CXX": "/opt/g++-13"}


def test_what_was_compiled_for_other_instructions_is_left_alone(tools, tiny_plan, monkeypatch):
    tools("g++")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    assert compiler_variables(tiny_plan("C"))["TORCHINDUCTOR_CACHE_DIR"].endswith("_avx2")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    assert compiler_variables(tiny_plan("C"))["TORCHINDUCTOR_CACHE_DIR"] == "/mine"


def test_gpus_need_a_c_compiler_and_triton(tools, tiny_plan):
    plan = tiny_plan("C", hardware__name="a800")
    assert (
        uncompilable(plan) == "C: torch.compile compiles in the ranks, and this machine has no C compiler (gcc, clang)"
    )
    tools("gcc")
    assert uncompilable(plan) is None
    assert "triton" in get_engine("pretrain", "deepspeed").needed_modules(
        plan.config.model_copy(update={"method": "C"})
    )
    assert "triton" not in get_engine("pretrain", "deepspeed").needed_modules(
        plan.config.model_copy(update={"method": "Naive"})
    )


def test_pythons_headers_are_needed_too(tools, tiny_plan, monkeypatch, tmp_path):
    tools("g++")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert (
        uncompilable(tiny_plan("C"))
        == "C: torch.compile compiles in the ranks, and this machine has no Python.h (python3-dev)"
    )
    assert uncompilable(tiny_plan("F")) is None
