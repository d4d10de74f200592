"""This machine's NVIDIA GPUs and their driver, as nvidia-smi names them; machine/gpu_load.py reads their load."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import cache

from llmexp.machine.command import output

MIB = 1024**2
# Lines of nvidia-smi -L: a GPU, and below it the parts into which it is divided.
_WHOLE, _PART = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)"), re.compile(r"\s+MIG (\S+) .*\(UUID: (MIG-[^)]+)\)")
FIELDS = "index,uuid,name,memory.total,power.limit,driver_version"
# Without its persistence daemon the driver wakes one GPU after the other before it answers.
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Gpu:
    """One GPU in the driver's own words, which are [N/A] where it cannot tell."""

    index: str
    uuid: str
    name: str
    memory_mebibytes: str
    power_limit_watts: str
    driver_version: str

    @property
    def memory_bytes(self) -> int | None:
        """The GPU's whole memory; None where the driver does not tell."""
        return int(self.memory_mebibytes) * MIB if self.memory_mebibytes.isdigit() else None


@cache
def gpus() -> tuple[Gpu, ...]:
    """Return all GPUs, none where there is no driver or it does not answer; each process asks once."""
    answer = _nvidia_smi(f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
    rows = ([cell.strip() for cell in line.split(",")] for line in answer.splitlines())
    return tuple(Gpu(*row) for row in rows if len(row) == len(FIELDS.split(",")))


@cache
def mig_devices() -> tuple[tuple[str, Gpu], ...]:
    """Return the parts into which GPUs are divided (MIG), each with the UUID of its whole GPU."""
    found: list[tuple[str, Gpu]] = []
    whole = None
    for line in _nvidia_smi("-L").splitlines() if gpus() else ():
        if name := _WHOLE.match(line):
            whole = next((gpu for gpu in gpus() if gpu.uuid == name[1]), None)
        elif whole and (part := _PART.match(line)):
            named = f"{whole.name} MIG {part[1]}"
            found.append((whole.uuid, replace(whole, uuid=part[2], name=named, memory_mebibytes="")))
    return tuple(found)


def visible_gpus() -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES allows, by index or by the start of a UUID.

    The first unknown entry ends the list, as in CUDA. Of GPUs that are divided (MIG) CUDA shows one part alone.
    """
    chosen = _chosen(os.environ.get("CUDA_VISIBLE_DEVICES"))
    parts = [part for whole, part in mig_devices() if chosen and chosen[0].uuid in (whole, part.uuid)]
    return parts[:1] or chosen


def _chosen(variable: str | None) -> list[Gpu]:
    if variable is None:
        return list(gpus())
    known, chosen = [*gpus(), *(part for _, part in mig_devices())], []
    for token in (part.strip() for part in variable.split(",")):
        match = next((gpu for gpu in known if token and (gpu.index == token or gpu.uuid.startswith(token))), None)
        if match is None:
            break
        chosen.append(match)
    return chosen


@cache
def compute_capability() -> tuple[int, int] | None:
    """Return the first GPU's compute capability; None where there is no GPU, or the driver is too old to tell."""
    return _version(r"\A\s*(\d+)\.(\d+)(?!\S)", _nvidia_smi("--query-gpu=compute_cap", "--format=csv,noheader"))


def has_nvlink() -> bool:
    """Return whether a bridge or a board links GPUs here by NVLink."""
    return "Link 0" in _nvidia_smi("nvlink", "--status")


def driver_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA that the driver serves; None where it does not answer."""
    return _version(r"CUDA (?:\w+ )?Version *: *(\d+)\.(\d+)", _nvidia_smi())


def _nvidia_smi(*words: str) -> str:
    """Return the tool's answer; empty where there is no tool, no driver or no answer in time."""
    return output("nvidia-smi", *words, timeout_s=_TIMEOUT_S) or ""


def _version(pattern: str, text: str) -> tuple[int, int] | None:
    found = re.search(pattern, text)
    return (int(found[1]), int(found[2])) if found else None
