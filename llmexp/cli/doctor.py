"""The checks of llmexp doctor, on this machine or on what runs need from it, a line each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from llmexp.doctor import check_node, check_software
from llmexp.doctor.check_run import check_run, check_submitting
from llmexp.doctor.finding import Finding
from llmexp.launch.detect import detect
from llmexp.machine.accelerators.here import vendor
from llmexp.record.plan import RunPlan


def examine(outputs: Path) -> Iterator[Finding]:
    """Check this machine; each check runs when its finding is asked for."""
    yield check_software.check_python()
    yield check_node.check_hardware()
    yield check_node.check_bf16()
    yield check_software.check_torch()
    yield check_software.check_engine("deepspeed")
    yield check_software.check_libraries()
    yield check_software.check_optional()
    yield check_software.check_compiler(made_by.name if (made_by := vendor()) else None)
    yield from _places(outputs)
    yield check_node.check_store(outputs)
    yield check_node.check_ports()
    yield check_node.check_slurm()
    yield check_node.check_memory()
    yield check_node.check_load()
    yield check_node.check_governor()


def examine_for(plans: Sequence[RunPlan], *, by_slurm: bool) -> Iterator[Finding]:
    """Check what these runs need, each thing once.

    With `by_slurm` the runs start on nodes that SLURM chooses.
    """
    yield check_software.check_python()
    yield check_software.check_torch()
    yield from dict.fromkeys(chain.from_iterable(check_run(plan, None if by_slurm else detect()) for plan in plans))
    yield check_software.check_libraries()
    outputs, tracked = Path(plans[0].config.sweep.outputs), plans[0].config.tracking.name == "mlflow"
    yield from _places(outputs)
    if tracked:
        yield check_node.check_store(outputs)
    if by_slurm:
        yield check_submitting()
        return
    yield check_node.check_ports()
    yield check_node.check_memory()
    yield check_node.check_load()
    yield check_node.check_governor()


def print_findings(findings: Iterator[Finding]) -> bool:
    """Print each finding as soon as it is found, and return whether no check failed."""
    well = True
    for finding in findings:
        print(f"{finding.level:<4}  {finding.what:<9}  {finding.says}", flush=True)
        well = well and finding.level != "fail"
    return well


def _places(outputs: Path) -> Iterator[Finding]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    yield check_node.check_folder("outputs", outputs, "set sweep.outputs to another folder")
    yield check_node.check_folder("cache", cache, "set XDG_CACHE_HOME to another folder")
