"""This machine's processor: its model, its instructions, its cores and those that this process may use, and the governor of its clock."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import psutil

from llmexp.machine.kernel_files import lines

CPU_INFO = Path("/proc/cpuinfo")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
MODEL, INSTRUCTIONS = "model name", ("flags", "Features")
# As Linux names the instructions that multiply bf16: x86's two kinds, and ARM's.
BF16_OF_X86, BF16_OF_ARM = ("avx512_bf16", "amx_bf16"), ("bf16",)


def model() -> str | None:
    """Return the processor's name; None where it cannot be read."""
    named = (line.partition(":") for line in lines(CPU_INFO))
    return (
        next((value.strip() for name, _, value in named if name.strip() == MODEL), None) or platform.processor() or None
    )


def instruction_sets() -> set[str]:
    """Return the names of what it can do beyond its architecture, as Linux has them; empty where that cannot be read."""
    return next(
        (set(line.partition(":")[2].split()) for line in lines(CPU_INFO) if line.startswith(INSTRUCTIONS)), set()
    )


def multiplies_bf16() -> bool:
    """Return whether it has instructions of its own for products of bf16."""
    return not instruction_sets().isdisjoint((*BF16_OF_X86, *BF16_OF_ARM))


def compiled_for() -> str:
    """Return all that code depends on which was compiled for the processor at hand: its model and instructions."""
    told = lines(CPU_INFO)
    if not told:
        return platform.processor() + platform.machine()
    return "\n".join(sorted({line for line in told if line.startswith((MODEL, *INSTRUCTIONS))}))


def physical_cores() -> int | None:
    """Return the number of its cores; None where the system does not tell."""
    return psutil.cpu_count(logical=False)


def logical_cores() -> int:
    """Return how many processes can compute at a time: two a core where it has hyper-threads."""
    return os.cpu_count() or 1


def bound_core_numbers() -> set[int] | None:
    """Return the numbers of the logical cores to which this process is bound; None where the system binds none (not Linux)."""
    return set(os.sched_getaffinity(0)) if sys.platform == "linux" else None


def bound_cores() -> int | None:
    """Return to how many logical cores this process is bound; None where the system binds none."""
    bound = bound_core_numbers()
    return None if bound is None else len(bound)


def usable_cores() -> int:
    """Return how many logical cores this process may compute on."""
    return bound_cores() or logical_cores()


def governor() -> str | None:
    """Return what governs the processor's clock; None where that is not shown, as in most virtual machines and containers."""
    return next(iter(lines(GOVERNOR)), "").strip() or None
