"""The environment of a measurement as the driver sees it: software, host, devices, checkouts; and the stack's digest.

Nothing here imports torch: the ranks write what only they know (kernels, NCCL, thread counts).
"""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from llmexp.machine import processor
from llmexp.machine.accelerators.here import gpus, vendor
from llmexp.machine.host_load import load_averages
from llmexp.machine.memory import machine_memory_bytes
from llmexp.record.checkout import checkouts
from llmexp.record.installed import Installed
from llmexp.record.redact import is_secret_name, redact

DISTRIBUTIONS = (
    "llmexp", "torch", "deepspeed", "transformers", "megatron-core", "peft", "accelerate", "bitsandbytes", "flash-attn",
    "triton", "transformer-engine", "apex", "numpy", "datasets", "tokenizers", "hydra-core", "pydantic", "mlflow",
    "nvidia-ml-py", "torchao",
)  # fmt: skip
# Environment variables that change what is measured. No other variable is ever written.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "NCCL_*", "TORCH_NCCL_*", "GLOO_*", "OMP_*", "MKL_NUM_THREADS", "KMP_*", "PYTORCH_*",
    "NVIDIA_TF32_OVERRIDE", "TOKENIZERS_PARALLELISM", "TORCHINDUCTOR_*", "TORCHDYNAMO_*", "TRITON_*",
    "HIP_*", "ROCR_*", "HSA_*", "RCCL_*", "MIOPEN_*",
)  # fmt: skip


def capture(ranks: Installed, folder: Path | None = None) -> dict[str, Any]:
    """Describe this machine, the checkouts and the ranks' Python; what cannot be found out is None.

    No secret is in it. Uncommitted changes are written to `folder`.
    """
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": ranks.python,
        "distributions": ranks.distributions,
        "cpu": cpu(),
        "memory_bytes": machine_memory_bytes(),
        "load_average": list(load_averages()),
        "gpus": _gpus(),
        "git": checkouts(folder),
        "variables": _variables(),
    }


def device_model(device: str) -> str:
    """Return the first GPU's name for 'cuda', else the processor's; 'unknown' where it cannot be read."""
    if device == "cuda":
        return gpus()[0].name if gpus() else "unknown"
    return processor.model() or "unknown"


def recorded_device_model(captured: Mapping[str, Any], device: str) -> str | None:
    """Return what `device_model` answered when an environment was captured; None where it was not recorded."""
    devices = (
        (recorded_gpus(captured) or {}).get("devices")
        if device == "cuda"
        else [{"name": (captured.get("cpu") or {}).get("model")}]
    )
    return str(devices[0]["name"]) if devices and devices[0]["name"] else None


def recorded_gpus(captured: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return driver_version and devices of a captured environment; None where it had no GPU.

    Older records call them nvidia.
    """
    return captured.get("gpus") or captured.get("nvidia")


def stack_digest(sources: Iterable[Path], versions: Mapping[str, str], device: str) -> str:
    """Return 12 hexadecimal digits of a hash over the ranks' sources, library versions and the device's name.

    A result of another stack is stale.
    """
    digest = hashlib.sha256()
    for path in sources:
        digest.update(f"{path.parent.name}/{path.name}\0".encode() + path.read_bytes() + b"\0")
    digest.update(repr((sorted(versions.items()), device)).encode())
    return digest.hexdigest()[:12]


def cpu() -> dict[str, Any]:
    """Describe this machine's processor: its model, cores, the cores that this process may use, and clock governor."""
    return {
        "model": processor.model(),
        "physical_cores": processor.physical_cores(),
        "logical_cores": processor.logical_cores(),
        "usable_cores": processor.bound_cores(),
        "governor": processor.governor(),
    }


def _gpus() -> dict[str, Any] | None:
    """Describe all GPUs of this machine and their driver, in the driver's words; None where there are none."""
    devices = [
        {"name": gpu.name, "memory_mebibytes": gpu.memory_mebibytes, "power_limit_watts": gpu.power_limit_watts}
        for gpu in gpus()
    ]
    made_by = vendor()
    if made_by is None:
        return None
    return {"vendor": made_by.name, "driver_version": gpus()[0].driver_version, "devices": devices}


def _variables() -> dict[str, str]:
    wanted = {
        name for name in os.environ for pattern in VARIABLES if fnmatch(name, pattern) and not is_secret_name(name)
    }
    return {name: redact(os.environ[name]) for name in sorted(wanted)}
