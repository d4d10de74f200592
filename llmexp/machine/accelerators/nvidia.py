"""NVIDIA's GPUs and their driver, as nvidia-smi names them."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import cache

from llmexp.machine.accelerators.gpu import Gpu, Vendor
from llmexp.machine.command import output

# Lines of nvidia-smi -L: a GPU, and below it the parts into which it is divided.
_WHOLE, _PART = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)"), re.compile(r"\s+MIG (\S+) .*\(UUID: (MIG-[^)]+)\)")
FIELDS = "index,uuid,name,memory.total,power.limit,driver_version"
# Without its persistence daemon the driver wakes one GPU after the other before it answers.
_TIMEOUT_S = 60.0


class Nvidia(Vendor):
    """GPUs that CUDA drives."""

    name, tool, compiler = "NVIDIA", "nvidia-smi", "nvcc"
    variables = (("CUDA_VISIBLE_DEVICES",),)

    def gpus(self) -> tuple[Gpu, ...]:
        """Return all GPUs as nvidia-smi lists them."""
        return listed()

    def visible(self) -> list[Gpu]:
        """Return the GPUs that CUDA_VISIBLE_DEVICES allows; of those that are divided (MIG) CUDA shows one part."""
        seen = super().visible()
        if not mig_devices():
            return seen
        words = os.environ.get(self.chooses)
        known = [*self.gpus(), *(part for _, part in mig_devices())]
        seen = [replace(gpu, handle=gpu.uuid) for gpu in (self.chosen(known, words) if words is not None else seen)]
        parts = [part for whole, part in mig_devices() if seen and seen[0].uuid in (whole, part.uuid)]
        return [replace(part, handle=part.uuid) for part in parts[:1]] or seen

    def linked(self) -> bool:
        """Tell whether a bridge or a board links GPUs here by NVLink; links that are off are listed without a rate."""
        return bool(re.search(r"Link \d+: *\d", _nvidia_smi("nvlink", "--status")))


@cache
def listed() -> tuple[Gpu, ...]:
    """Return all GPUs; each process asks the tool once."""
    answer = _nvidia_smi(f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
    rows = ([cell.strip() for cell in line.split(",")] for line in answer.splitlines())
    found = [Gpu(*row) for row in rows if len(row) == len(FIELDS.split(","))]
    # An older driver refuses a question with a field that it does not know, and so is asked for this one alone.
    versions = _nvidia_smi("--query-gpu=compute_cap", "--format=csv,noheader").splitlines() if found else []
    if len(versions) != len(found):
        return tuple(found)
    return tuple(replace(gpu, architecture=_sm(version)) for gpu, version in zip(found, versions, strict=True))


def _sm(version: str) -> str | None:
    found = re.fullmatch(r"\s*(\d+)\.(\d+)\s*", version)
    return f"sm_{found[1]}{found[2]}" if found else None


@cache
def mig_devices() -> tuple[tuple[str, Gpu], ...]:
    """Return the parts into which GPUs are divided (MIG), each with the UUID of its whole GPU."""
    found: list[tuple[str, Gpu]] = []
    whole = None
    for line in _nvidia_smi("-L").splitlines() if listed() else ():
        if name := _WHOLE.match(line):
            whole = next((gpu for gpu in listed() if gpu.uuid == name[1]), None)
        elif whole and (part := _PART.match(line)):
            named = f"{whole.name} MIG {part[1]}"
            found.append((whole.uuid, replace(whole, uuid=part[2], name=named, memory_mebibytes="")))
    return tuple(found)


def driver_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA that the driver serves; None where it does not answer."""
    found = re.search(r"CUDA (?:\w+ )?Version *: *(\d+)\.(\d+)", _nvidia_smi())
    return (int(found[1]), int(found[2])) if found else None


def _nvidia_smi(*words: str) -> str:
    """Return the tool's answer; empty where there is no tool, no driver or no answer in time."""
    return output("nvidia-smi", *words, timeout_s=_TIMEOUT_S) or ""
