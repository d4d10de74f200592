"""Which numbers of a machine differ from those of its file: what if its memory were faster?"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from llmexp.plugins import CONF, conf_packages
from llmexp.schema import HardwareConfig

# The numbers by which a step's time goes, and what people call them.
NUMBERS = {
    "peak_flops_per_s": "peak",
    "memory_bandwidth_bytes_per_s": "memory bandwidth",
    "interconnect_bandwidth_bytes_per_s": "interconnect",
    "network_bandwidth_bytes_per_s": "network",
    "host_link_bandwidth_bytes_per_s": "host link",
}


def as_filed(hardware: HardwareConfig) -> HardwareConfig:
    """Return the machine with the numbers of its file, which measured rates belong to; a number without one stays."""
    return hardware.model_copy(update={name: filed for name, filed in _filed(hardware.name).items() if filed})


def changed_numbers(hardware: HardwareConfig) -> list[str]:
    """Return what people call the numbers that differ from those of the machine's file; one left out differs not."""
    filed = as_filed(hardware)
    now = {name: getattr(hardware, name) for name in NUMBERS}
    return [NUMBERS[name] for name, value in now.items() if value and value != getattr(filed, name)]


@cache
def _filed(name: str) -> dict[str, Any]:
    """Return the numbers of the file that llmexp, or a package, has for a machine; none where there is no file."""
    keys = keys_of_file(name) or {}
    return {number: keys[number] for number in NUMBERS if number in keys}


def keys_of_file(name: str) -> dict[str, Any] | None:
    """Return all keys of a machine's file, those of the file that it is based on too; None where there is no file."""
    from omegaconf import OmegaConf

    for package in (CONF, *conf_packages()):
        file = files(package) / "hardware" / f"{name}.yaml"
        if file.is_file():
            read: Any = OmegaConf.to_container(OmegaConf.create(file.read_text(encoding="utf-8")), resolve=False)
            bases = [keys_of_file(base) or {} for base in read.pop("defaults", ()) if base != "_self_"]
            return {key: value for keys in (*bases, read) for key, value in keys.items()}
    return None
