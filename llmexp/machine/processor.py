"""This machine's processor: its model, instructions, cores, the cores that this process may use, and clock governor."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

import psutil

from llmexp.machine.kernel_files import lines

CPU_INFO = Path("/proc/cpuinfo")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
CORES = Path("/sys/devices/system/cpu")
CACHE_UNITS = {"K": 2**10, "M": 2**20}
MODEL, INSTRUCTIONS = "model name", ("flags", "Features")
# Linux's names for the instructions that multiply bf16: x86 has two kinds, ARM has one.
BF16_OF_X86, BF16_OF_ARM = ("avx512_bf16", "amx_bf16"), ("bf16",)
# The same of fp16.
FP16_OF_X86, FP16_OF_ARM = ("avx512_fp16", "amx_fp16"), ("asimdhp",)


def model() -> str | None:
    """Return the processor's name; None where it cannot be read."""
    named = (line.partition(":") for line in lines(CPU_INFO))
    return (
        next((value.strip() for name, _, value in named if name.strip() == MODEL), None) or platform.processor() or None
    )


def instruction_sets() -> set[str]:
    """Return Linux's names for the processor's instruction set extensions; empty where they cannot be read."""
    return next(
        (set(line.partition(":")[2].split()) for line in lines(CPU_INFO) if line.startswith(INSTRUCTIONS)), set()
    )


def multiplies_bf16() -> bool:
    """Return whether the processor has instructions that multiply bf16."""
    return not instruction_sets().isdisjoint((*BF16_OF_X86, *BF16_OF_ARM))


def multiplies_fp16() -> bool:
    """Return whether the processor has instructions that multiply fp16."""
    return not instruction_sets().isdisjoint((*FP16_OF_X86, *FP16_OF_ARM))


def compiled_for() -> str:
    """Return a text that changes with the processor's model and instructions, on which compiled code depends."""
    told = lines(CPU_INFO)
    if not told:
        return platform.processor() + platform.machine()
    return "\n".join(sorted({line for line in told if line.startswith((MODEL, *INSTRUCTIONS))}))


def last_cache_bytes() -> int | None:
    """Return the size of the last caches of all cores that this process may use; None where the system does not tell.

    Cores share a cache, and a processor may have several: STREAM's rule counts them all.
    """
    cores = bound_core_numbers() or range(logical_cores())
    return sum(dict(filter(None, map(_last_cache, cores))).values()) or None


def _last_cache(core: int) -> tuple[tuple[str, ...], int] | None:
    """Return a core's cache of the highest level, known by that and by the cores that share it, and its bytes."""
    found: list[tuple[tuple[str, ...], int]] = []
    for folder in (CORES / f"cpu{core}" / "cache").glob("index*"):
        level, size, *shared = (next(iter(lines(folder / name)), "") for name in ("level", "size", "shared_cpu_list"))
        if told := re.fullmatch(r"(\d+)([KM])", size):
            found.append(((level, *(shared or str(core))), int(told[1]) * CACHE_UNITS[told[2]]))
    return max(found, default=None)


def physical_cores() -> int | None:
    """Return the number of physical cores; None where the system does not tell."""
    return psutil.cpu_count(logical=False)


def logical_cores() -> int:
    """Return the number of logical cores: two for each physical core where it has hyper-threads."""
    return os.cpu_count() or 1


def bound_core_numbers() -> set[int] | None:
    """Return the numbers of the logical cores that this process is bound to; None where there is no binding."""
    return set(os.sched_getaffinity(0)) if sys.platform == "linux" else None


def bind_to(cores: set[int]) -> None:
    """Bind this process's present thread, and those that it starts from now on, to these logical cores (Linux)."""
    os.sched_setaffinity(0, cores)


def bound_cores() -> int | None:
    """Return the number of logical cores that this process is bound to; None where there is no binding (not Linux)."""
    bound = bound_core_numbers()
    return None if bound is None else len(bound)


def usable_cores() -> int:
    """Return the number of logical cores that this process may use."""
    return bound_cores() or logical_cores()


def governor() -> str | None:
    """Return the clock's governor; None where it is not shown, as in most virtual machines and containers."""
    return next(iter(lines(GOVERNOR)), "").strip() or None
