"""llmexp doctor: each check of this machine, a line each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from llmexp.doctor import check_node, check_software
from llmexp.doctor.finding import Finding
from llmexp.plan.detect import detect


def examine(outputs: Path) -> Iterator[Finding]:
    """Check this machine, each thing as it is asked for."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    yield check_software.check_python()
    yield check_node.check_hardware()
    yield check_node.check_bf16()
    yield check_software.check_torch()
    yield check_software.check_engine("deepspeed")
    yield check_software.check_libraries()
    yield check_software.check_optional()
    yield check_software.check_compiler(needs_nvcc=detect().hardware != "cpu")
    yield check_node.check_folder("outputs", outputs, "set sweep.outputs to another folder")
    yield check_node.check_folder("cache", cache, "set XDG_CACHE_HOME to another folder")
    yield check_node.check_store(outputs)
    yield check_node.check_ports()
    yield check_node.check_slurm()
    yield check_node.check_memory()
    yield check_node.check_governor()


def print_findings(outputs: Path) -> bool:
    """Print what is found, as it is found; return whether nothing failed."""
    well = True
    for finding in examine(outputs):
        print(f"{finding.level:<4}  {finding.what:<9}  {finding.says}", flush=True)
        well = well and finding.level != "fail"
    return well
