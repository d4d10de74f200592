"""OmegaConf resolvers that ask the machine and the code, such as ${llmexp.detected:devices} in conf/."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from llmexp.errors import ConfigError
from llmexp.launch.detect import described, detect
from llmexp.machine import bf16
from llmexp.method import atom_codes, atom_of
from llmexp.plugins import CONF
from llmexp.schema.model import RUN


def register() -> None:
    """Register the resolvers with OmegaConf in this process; may be called again."""
    resolvers: dict[str, Callable[..., Any]] = {
        "detected_hardware": lambda: f"/hardware/{detect().hardware}",
        "detected": lambda field: getattr(detect(), field),
        "native_precision": lambda hardware: bf16.chosen(hardware)[0],
        "why_precision": lambda hardware: bf16.chosen(hardware)[1],
        "precision": lambda name, field: OmegaConf.load(str(files(CONF) / "precision" / f"{name}.yaml"))[field],
        "by_device": lambda device, on_cpu, on_gpu: on_cpu if device == "cpu" else on_gpu,
        "quickest_launcher": lambda device: "fork" if device == "cpu" else "spawn",
        "detected_gpu": _detected_gpu,
        "stdlib": lambda file: str(Path(sysconfig.get_path("stdlib")) / file),
        "server_python": server_python,
        "model_name": _model_name,
        "atom_codes": lambda: ", ".join(atom_codes()),
        "atoms": lambda: "\n  ".join(f"{atom.code:<5}{atom.help}" for atom in map(atom_of, atom_codes())),
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(f"llmexp.{name}", resolver, replace=True)


def server_python(name: str) -> str | None:
    """Return the interpreter of a server's own environment: the one that is named, or that of `make serve-venv`."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    made = data / "llmexp" / "servers" / name / "bin" / "python"
    return os.environ.get(f"LLMEXP_{name.upper()}_PYTHON") or (str(made) if made.exists() else None)


def _model_name(path: str | None) -> str:
    """Return the name of a model by its place: a folder's own, or that of the run of the sweep that makes it."""
    if not path:
        return "hf"
    return path.removeprefix(RUN) if path.startswith(RUN) else Path(os.path.abspath(path)).name


def _detected_gpu(field: str) -> Any:
    """Return what the driver says of this machine's GPUs; raises ConfigError where it shows none."""
    if not detect().device_name:
        named = ", ".join(name for name in described() if name != "cpu")
        raise ConfigError(
            "hardware=gpu: no GPU is visible here; hardware=cpu runs here, and to plan for another "
            f"machine name it: {named}"
        )
    return getattr(detect(), field)
