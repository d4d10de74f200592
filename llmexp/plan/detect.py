"""What hardware=auto stands for: this machine's GPUs as the driver names them, matched with the files of conf/hardware and of other packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import takewhile
from typing import Any

from llmexp.outside import CONF, conf_packages

MIB = 1024**2
CPU_RANKS = 2
DETECTING = ("auto.yaml", "gpu.yaml")
QUERY = ["nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"]


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver reports it."""

    index: str
    uuid: str
    name: str
    memory_bytes: int | None


@dataclass(frozen=True)
class Detected:
    """This machine: which file of conf/hardware describes it, and what the driver says."""

    hardware: str
    name: str
    device_name: str
    devices: int
    memory_bytes: int | None
    device_ids: tuple[str, ...] = ()
    """What CUDA_VISIBLE_DEVICES calls each."""


@cache
def detect() -> Detected:
    """Look once a process; cpu where the driver shows no GPU to this process."""
    gpus = visible(_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not gpus:
        return Detected("cpu", "cpu", "", min(CPU_RANKS, os.cpu_count() or 1), None)
    first = gpus[0]
    same = list(takewhile(lambda gpu: gpu.name == first.name, gpus))
    slug = re.sub(r"[^a-z0-9]+", "_", first.name.lower().removeprefix("nvidia ")).strip("_")
    ids = tuple(gpu.uuid for gpu in same)
    return Detected(_hardware_of(first.name), slug, first.name, len(same), first.memory_bytes, ids)


@cache
def compute_capability() -> tuple[int, int] | None:
    """That of this machine's first GPU; None where there is none, or the driver is too old to tell."""
    first, *_ = _nvidia_smi(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]).split() or [""]
    major, _, minor = first.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def visible(gpus: list[Gpu], cuda_visible_devices: str | None) -> list[Gpu]:
    """What CUDA_VISIBLE_DEVICES leaves of the GPUs: indices or starts of UUIDs; as CUDA does, the first unknown one ends the list."""
    if cuda_visible_devices is None:
        return gpus
    chosen = []
    for token in (part.strip() for part in cuda_visible_devices.split(",")):
        match = next((gpu for gpu in gpus if token and (gpu.index == token or gpu.uuid.startswith(token))), None)
        if match is None:
            break
        chosen.append(match)
    return chosen


def _gpus() -> list[Gpu]:
    lines = _nvidia_smi(QUERY).splitlines()
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    return [Gpu(index, uuid, name, int(mib) * MIB if mib.isdigit() else None) for index, uuid, name, mib in rows]


def _nvidia_smi(command: list[str]) -> str:
    """The tool's answer; empty where there is no tool, no driver or no answer in time."""
    if not shutil.which(command[0]):
        return ""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (subprocess.SubprocessError, OSError):
        return ""


def _hardware_of(device_name: str) -> str:
    """The file whose device_names hold this one; where NVLink tells two of them apart, the one that this machine's links fit."""
    found = {name: node for name, node in described().items() if device_name in node.get("device_names", ())}
    if len(found) > 1:
        bridged = "Link 0" in _nvidia_smi(["nvidia-smi", "nvlink", "--status"])
        found = {name: node for name, node in found.items() if str(node.get("interconnect")).startswith("NVLink") == bridged}
    return next(iter(found), "gpu")


def described() -> dict[str, Any]:
    """The machines that files describe, by the files' names."""
    from omegaconf import OmegaConf

    folders = (files(package) / "hardware" for package in (CONF, *conf_packages()))
    found = (file for folder in folders if folder.is_dir() for file in folder.iterdir())
    named = {file.name.removesuffix(".yaml"): file for file in found if file.name.endswith(".yaml") and file.name not in DETECTING}
    return {name: OmegaConf.create(named[name].read_text()) for name in sorted(named)}
