"""The detection behind hardware=auto: it looks up the driver's GPU names in the hardware files of all packages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import takewhile
from typing import Any

from llmexp.machine.accelerators.here import vendor, visible_gpus
from llmexp.machine.processor import logical_cores
from llmexp.plugins import CONF, conf_packages

CPU_RANKS = 2
DETECTING = ("auto.yaml", "gpu.yaml")


@dataclass(frozen=True)
class Detected:
    """The file of conf/hardware that describes this machine, and what the driver says of its devices."""

    hardware: str
    name: str
    device_name: str
    devices: int
    memory_bytes: int | None
    device_ids: tuple[str, ...] = ()
    """What the variable that chooses among the devices calls them."""
    architecture: str | None = None


@cache
def detect() -> Detected:
    """Look at this machine once per process; it counts as cpu where the driver shows no GPU to this process."""
    gpus = visible_gpus()
    if not gpus:
        return Detected("cpu", "cpu", "", min(CPU_RANKS, logical_cores()), None)
    first = gpus[0]
    same = list(takewhile(lambda gpu: gpu.name == first.name, gpus))
    slug = re.sub(r"[^a-z0-9]+", "_", first.name.lower().removeprefix("nvidia ").removeprefix("amd ")).strip("_")
    ids = tuple(gpu.handle for gpu in same)
    named = _hardware_of(first.name)
    return Detected(named, slug, first.name, len(same), first.memory_bytes, ids, first.architecture)


def is_linked(hardware: Mapping[str, Any]) -> bool:
    """Tell whether a hardware file's GPUs are linked by NVLink."""
    return str(hardware.get("interconnect")).startswith("NVLink")


def _hardware_of(device_name: str) -> str:
    """Return the file that lists this device name; between several, choose by whether GPUs here are linked."""
    found = {name: node for name, node in described().items() if device_name in node.get("device_names", ())}
    if len(found) > 1:
        made_by = vendor()
        bridged = bool(made_by and made_by.linked())
        found = {name: node for name, node in found.items() if is_linked(node) == bridged}
    return next(iter(found), "gpu")


def described() -> dict[str, Any]:
    """Read the hardware files of llmexp and of other packages; return them by the files' names."""
    from omegaconf import OmegaConf

    folders = (files(package) / "hardware" for package in (CONF, *conf_packages()))
    found = (file for folder in folders if folder.is_dir() for file in folder.iterdir())
    named = {
        file.name.removesuffix(".yaml"): file
        for file in found
        if file.name.endswith(".yaml") and file.name not in DETECTING
    }
    return {name: OmegaConf.create(named[name].read_text()) for name in sorted(named)}
