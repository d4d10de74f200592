"""The tools that compile code for the ranks: torch.compile's, which the ranks call, and those of an engine's ops."""

from __future__ import annotations

import os
from tempfile import gettempdir

from llmexp.launch.runtime import Runtime
from llmexp.record.installed import C_COMPILERS, COMPILERS, Installed
from llmexp.record.plan import RunPlan
from llmexp.registry import get_engine

_CXX = f"C++ compiler ({', '.join(COMPILERS)})"


def compile_tools(found: Installed, device: str) -> dict[str, str | None]:
    """Return the path of each tool that torch.compile needs, None for a missing one.

    It needs a C++ compiler for a CPU, and a C compiler for a GPU, because Triton's launchers are in C.
    """
    compilers = {
        "cpu": {_CXX: found.compiler},
        "cuda": {f"C compiler ({', '.join(C_COMPILERS)})": found.c_compiler},
    }
    return compilers[device] | {"Python.h (python3-dev)": found.python_header}


def build_tools(found: Installed, *, gpu: bool, amd: bool = False) -> dict[str, str | None]:
    """Return the path of each tool that builds an extension of torch, such as DeepSpeed's ops; None for a missing one.

    `gpu` asks for one with kernels for GPUs, `amd` for those of AMD.
    """
    kernels = {"hipcc (ROCm)": found.hipcc} if amd else {"nvcc (CUDA toolkit)": found.nvcc}
    return {_CXX: found.compiler, "ninja": found.ninja, **(kernels if gpu else {})}


def uncompilable(plan: RunPlan) -> str | None:
    """Say what torch.compile lacks where the plan's ranks run; None where it lacks nothing."""
    if not plan.compiles:
        return None
    missing = [
        name for name, path in compile_tools(Runtime(plan).installed, plan.config.hardware.device).items() if not path
    ]
    if not missing:
        return None
    lacking = f"in the ranks, and this machine has no {' and no '.join(missing)}"
    if "C" in plan.atom_codes:
        return f"C: torch.compile compiles {lacking}"
    name = plan.config.engine.name
    instead = get_engine(plan.config.task.name, name).without_compiling
    return f"engine={name}: torch.compile compiles its fusions {lacking}; without them: {instead}"


def compiler_variables(plan: RunPlan) -> dict[str, str]:
    """Return the environment variables for torch.compile.

    They name the C++ compiler that was found, as torch.compile itself knows only g++, and a cache for this choice of
    CPU instructions alone.
    """
    if not plan.compiles:
        return {}
    found, instructions = Runtime(plan).installed.compiler, os.environ.get("ATEN_CPU_CAPABILITY")
    # torch 2.13 reuses cached code that was compiled for other instructions, which corrupts the ranks' memory.
    cache = f"{gettempdir()}/torchinductor_{os.getuid()}_{instructions}" if instructions else None
    variables = {"CXX": found, "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or cache}
    return {name: value for name, value in variables.items() if value}
