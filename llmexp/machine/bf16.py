"""This module tells, without torch, whether devices have bf16 instructions.

precision=auto depends on the answer, and whoever asks for bf16 without such instructions is warned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from llmexp.machine.processor import BF16_OF_ARM, BF16_OF_X86, instruction_sets, multiplies_bf16

# These variables keep oneDNN, which multiplies for torch on CPUs, to fewer instructions than there are; these values
# still allow bf16.
ISA_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
ISAS_WITH_BF16 = ("DEFAULT", "ALL", "BF16", "FP16", "AMX", "AVX10")
NATIVE, ELSE = "bf16_mixed", "fp32"
# The compute capability from which GPUs multiply bf16.
AMPERE = 80


@cache
def cpu_lacks() -> str:
    """Say why this processor has no bf16 instructions; return "" where it has them."""
    name, limit = _limit()
    if not any(isa in limit for isa in ISAS_WITH_BF16):
        return f"{name}={limit} leaves bf16 instructions out"
    if multiplies_bf16():
        return ""
    return f"this processor has no bf16 instructions ({', '.join(BF16_OF_X86)} or ARM's {BF16_OF_ARM[0]})"


def lacks(hardware: Mapping[str, Any]) -> str:
    """Say why the hardware of a configuration has no bf16 instructions; return "" where it has them.

    A CPU is taken to be this machine's. A GPU whose architecture is not known is taken to have them.
    """
    if hardware["device"] == "cpu":
        return cpu_lacks()
    architecture = str(hardware.get("architecture") or "")
    old = architecture.startswith("sm_") and int(architecture.removeprefix("sm_")) < AMPERE
    return f"{(hardware.get('device_names') or [hardware['name']])[0]} is older than Ampere" if old else ""


def chosen(hardware: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of the precision that precision=auto chooses, and the reason."""
    why = lacks(hardware)
    return (ELSE, why) if why else (NATIVE, f"hardware={hardware['name']} multiplies bf16 natively")


def slower_on_cpu() -> str:
    """Say how much longer bf16 products take on a CPU without instructions for them.

    `python -m benchmarks.bf16` measured the factors on one processor with AVX-512 and one without.
    """
    wide = "avx512f" in instruction_sets() and "AVX2" not in _limit()[1]
    return f"matrix products take {'about 4' if wide else '10 or more'} times as long as with precision=fp32"


def _limit() -> tuple[str, str]:
    """Return the variable that keeps oneDNN to fewer instructions, and its value in capitals."""
    return next(((name, os.environ[name].upper()) for name in ISA_LIMITS if os.environ.get(name)), ("", "DEFAULT"))
