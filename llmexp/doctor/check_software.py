"""Checks of the software for `llmexp doctor`; they read metadata, so that nothing heavy is imported."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from llmexp.doctor.finding import Finding
from llmexp.launch.compilers import build_tools, compile_tools
from llmexp.machine.accelerators.here import vendor
from llmexp.machine.accelerators.nvidia import driver_cuda
from llmexp.record.environment import DISTRIBUTIONS
from llmexp.record.installed import OLDEST_PYTHON, installs, look, versions
from llmexp.registry import get_engine

Cuda = tuple[int, int]
Level = Literal["ok", "warn", "fail"]
NEWEST_PYTHON = (3, 12)
# Each optional module, and what does not work without it.
OPTIONAL = {
    "mlflow": "no tracking but tracking=none",
    "matplotlib": "no pictures",
    "bitsandbytes": "no Q",
    "datasets": "no data=hf",
    "torchao": "no precision=fp8",
    "pynvml": "no power, clocks and throttling of GPUs; pip install nvidia-ml-py",
}


def check_python() -> Finding:
    """Check the interpreter's version."""
    said = f"{sys.version_info.major}.{sys.version_info.minor} ({sys.executable})"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("fail", "python", f"{said}: llmexp needs 3.11 or 3.12")
    if sys.version_info[:2] > NEWEST_PYTHON:
        return Finding("warn", "python", f"{said}: llmexp was tested with 3.11 and 3.12")
    return Finding("ok", "python", said)


def check_torch() -> Finding:
    """Check the torch build against the driver of the GPUs."""
    try:
        found = version("torch")
    except PackageNotFoundError:
        return Finding(
            "warn",
            "torch",
            "not installed: planning and reports work, but measuring does not; run make, or pip install torch",
        )
    made_by = vendor()
    if made_by and made_by.name == "AMD":
        level, said = judge_rocm(torch_version("hip"))
    else:
        level, said = judge_build(torch_version("cuda"), driver_cuda())
    return Finding(level, "torch", f"{found}, {said}")


def judge_build(built: Cuda | None, driver: Cuda | None) -> tuple[Level, str]:
    """Compare the CUDA version of the torch build with the newest one that the driver supports.

    `built` is None for a build without CUDA, `driver` is None where there is no driver.
    """
    if built is None and driver is None:
        return "ok", "a build without CUDA, and no NVIDIA driver"
    if built is None:
        return "fail", "a build without CUDA beside an NVIDIA driver: make clean, then make run TORCH=cuda"
    said = "built for CUDA {}.{}".format(*built)
    if driver is None:
        return "warn", f"{said}, and nvidia-smi finds no driver: only hardware=cpu runs on this node"
    said += "; the driver serves {}.{}".format(*driver)
    if driver >= built:
        return "ok", said
    if driver[0] == built[0]:
        return (
            "warn",
            f"{said}: kernels compiled at run time (Triton, torch.compile) may fail; "
            "take a newer driver or an older build of torch",
        )
    return "fail", f"{said} at most: install a torch built for that (make clean, make run TORCH=...), or a newer driver"


def judge_rocm(built: Cuda | None) -> tuple[Level, str]:
    """Say whether a torch build, with its HIP version or None, runs on AMD's GPUs."""
    if built is None:
        return "fail", "a build without ROCm beside AMD's GPUs: install torch from PyTorch's index for ROCm"
    return "ok", "built for ROCm with HIP {}.{}; llmexp was never run on AMD's GPUs".format(*built)


def torch_version(library: Literal["cuda", "hip"]) -> Cuda | None:
    """Return the version of CUDA or HIP that the installed torch was built for, read from its version file.

    None for a build without it.
    """
    source = Path(str(distribution("torch").locate_file("torch/version.py")))
    found = re.search(rf"^{library}\b.*= *'(\d+)\.(\d+)", source.read_text(), re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def check_engine(name: str) -> Finding:
    """Check that the modules which an engine's ranks import are installed."""
    missing = [module for module in get_engine("pretrain", name).modules if find_spec(module) is None]
    if not missing:
        return Finding("ok", name, "has what its ranks import")
    return Finding(
        "warn",
        name,
        f"needs {', '.join(missing)}: {installs(get_engine('pretrain', name).extras)}, torch first; "
        "without internet, make wheelhouse elsewhere",
    )


def check_libraries() -> Finding:
    """Check for versions outside the ranges that llmexp accepts, or different from the tested ones."""
    refused = [f"{name} {here} (takes {taken})" for name, here, taken in outside_ranges()]
    if refused:
        return Finding("fail", "libraries", f"{', '.join(refused)}: {installs('train')} with -c constraints.txt")
    tested, here = pinned_versions(), versions(DISTRIBUTIONS)
    known = [name for name in here if name in tested]
    other = [
        f"{name} {here[name]} (tested {tested[name]})" for name in known if here[name].partition("+")[0] != tested[name]
    ]
    if other:
        return Finding(
            "warn",
            "libraries",
            f"not as tested: {', '.join(other)}; {installs('train')} with -c constraints.txt takes those",
        )
    return Finding("ok", "libraries", f"as tested: {', '.join(known)}")


def check_optional() -> Finding:
    """Check for modules that only some runs or commands need."""
    missing = [f"{name} ({missed})" for name, missed in OPTIONAL.items() if find_spec(name) is None]
    if missing:
        return Finding("warn", "optional", f"not installed: {', '.join(missing)}; pip install what you need of them")
    return Finding("ok", "optional", f"{', '.join(OPTIONAL)} are here")


def check_compiler(gpu: str | None) -> Finding:
    """Check the tools that compile DeepSpeed's own Adam and the code that torch.compile generates.

    The first needs a C++ compiler, ninja and, with GPUs, their maker's compiler; the second needs a compiler and
    Python.h. `gpu` is the maker of this machine's GPUs.
    """
    found = look()
    for_adam = build_tools(found, gpu=gpu is not None, amd=gpu == "AMD")
    for_c = compile_tools(found, "cuda" if gpu else "cpu")
    lost = {"deepspeed_adamw and adamw_cpuadam": for_adam, "C (torch.compile)": for_c}
    tools = for_adam | for_c
    missing = [name for name, path in tools.items() if not path]
    if not missing:
        return Finding("ok", "compiler", ", ".join(filter(None, tools.values())))
    wanted = ", ".join(name for name, needed in lost.items() if not all(needed.values()))
    return Finding(
        "warn",
        "compiler",
        f"no {', no '.join(missing)}: install it for {wanted}; optimizer=adamw without C compiles nothing",
    )


def pinned_versions() -> dict[str, str]:
    """Return the pinned version of each distribution, from the constraints.txt inside the package."""
    lines = (files("llmexp") / "constraints.txt").read_text().splitlines()
    return {name: pinned for name, _, pinned in (line.partition("==") for line in lines) if pinned}


def outside_ranges() -> list[tuple[str, str, str]]:
    """Return name, version and accepted range of each installed distribution that llmexp's own metadata excludes."""
    wanted = [
        one
        for one in map(Requirement, requires("llmexp") or [])
        if one.marker is None or one.marker.evaluate({"extra": "train"})
    ]
    here = versions(one.name for one in wanted)
    return [
        (one.name, here[one.name], str(one.specifier))
        for one in wanted
        if one.name in here and not one.specifier.contains(here[one.name], prereleases=True)
    ]
