"""What hardware=auto stands for: this machine's GPUs as the driver names them, matched with the files of conf/hardware and of other packages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import takewhile
from typing import Any

from llmexp.machine.gpus import has_nvlink, visible_gpus
from llmexp.machine.processor import logical_cores
from llmexp.plugins import CONF, conf_packages

CPU_RANKS = 2
DETECTING = ("auto.yaml", "gpu.yaml")


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
    gpus = visible_gpus()
    if not gpus:
        return Detected("cpu", "cpu", "", min(CPU_RANKS, logical_cores()), None)
    first = gpus[0]
    same = list(takewhile(lambda gpu: gpu.name == first.name, gpus))
    slug = re.sub(r"[^a-z0-9]+", "_", first.name.lower().removeprefix("nvidia ")).strip("_")
    ids = tuple(gpu.uuid for gpu in same)
    return Detected(_hardware_of(first.name), slug, first.name, len(same), first.memory_bytes, ids)


def _hardware_of(device_name: str) -> str:
    """The file whose device_names hold this one; where NVLink tells two of them apart, the one that this machine's links fit."""
    found = {name: node for name, node in described().items() if device_name in node.get("device_names", ())}
    if len(found) > 1:
        bridged = has_nvlink()
        found = {
            name: node for name, node in found.items() if str(node.get("interconnect")).startswith("NVLink") == bridged
        }
    return next(iter(found), "gpu")


def described() -> dict[str, Any]:
    """The machines that files describe, by the files' names."""
    from omegaconf import OmegaConf

    folders = (files(package) / "hardware" for package in (CONF, *conf_packages()))
    found = (file for folder in folders if folder.is_dir() for file in folder.iterdir())
    named = {
        file.name.removesuffix(".yaml"): file
        for file in found
        if file.name.endswith(".yaml") and file.name not in DETECTING
    }
    return {name: OmegaConf.create(named[name].read_text()) for name in sorted(named)}
