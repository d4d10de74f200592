"""The part of the environment that only a rank knows: the torch build, the device and its libraries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from llmexp.launchers.rank.binding import binding
from llmexp.launchers.rank.communication import communication


def rank_environment(device: torch.device, folder: Path) -> dict[str, Any]:
    """Return versions and device properties as torch reports them, and the ranks' connections.

    NCCL has written its connections into `folder`.
    """
    found: dict[str, Any] = {
        "interpreter": sys.executable,
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "device_type": device.type,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            "cudnn": torch.backends.cudnn.version(),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "device_name": properties.name,
            "device_memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
        } | binding()
    else:
        found["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    if torch.distributed.is_initialized():
        found["communication"] = communication(torch.distributed.get_backend(), folder)
    return found
