"""Finds how ranks communicate: NCCL's transports from its log, Gloo's interfaces from its connections."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

# NCCL writes these parts of its log while connections are made, and not in every step.
_NCCL_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
_VIA = re.compile(r"NCCL INFO .* via ((?:P2P|SHM|NET|COLLNET)/.+?)(?: comm .*)?$")
_NVLS = re.compile(r"NCCL INFO .*\b(\d+) nvls channels")


def log_connections(folder: Path) -> None:
    """Make NCCL write its ranks' connections to nccl.<host>.<process>.log; a user's own NCCL_DEBUG stays.

    Call this before NCCL starts.
    """
    if "NCCL_DEBUG" not in os.environ:
        os.environ.update(_NCCL_LOG | {"NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log")})


def communication(backend: str, folder: Path) -> dict[str, Any]:
    """Return the backend, with what is known about its ranks' connections."""
    if backend == "nccl":
        logs = list(folder.glob("nccl.*.log")) or list(folder.glob("log.*.txt"))
        return {"backend": backend} | nccl_connections(
            line for path in sorted(logs) for line in path.read_text(errors="replace").splitlines()
        )
    if backend == "gloo":
        return {
            "backend": backend,
            "transport": os.environ.get("GLOO_DEVICE_TRANSPORT", "tcp").lower(),
            "interfaces": _interfaces(),
        }
    return {"backend": backend}


def nccl_connections(lines: Iterable[str]) -> dict[str, Any]:
    """Count connections by transport, such as P2P/CUMEM or NET/IB/GDRDMA, and NVLS channels, from NCCL's log.

    A value is None where the log does not mention it.
    """
    transports: Counter[str] = Counter()
    nvls_channels = None
    for line in lines:
        if found := _VIA.search(line):
            transports["/".join(part for part in found[1].strip().split("/") if not part.isdigit())] += 1
        if found := _NVLS.search(line):
            nvls_channels = max(nvls_channels or 0, int(found[1]))
    return {"transports": dict(sorted(transports.items())) or None, "nvls_channels": nvls_channels}


def _interfaces() -> list[str]:
    """Return the network interfaces of this process's connections to its peers.

    The connection to the store is left out; it is known by its port.
    """
    process = psutil.Process()
    connections = (
        process.net_connections if hasattr(process, "net_connections") else process.connections
    )  # psutil 6 renamed it
    store = int(os.environ.get("MASTER_PORT", 0))
    peers = [
        one
        for one in connections("tcp")
        if one.status == psutil.CONN_ESTABLISHED and store not in (one.laddr.port, one.raddr.port)
    ]
    addresses = {one.laddr.ip.removeprefix("::ffff:") for one in peers}
    return sorted(
        name for name, own in psutil.net_if_addrs().items() if any(address.address in addresses for address in own)
    )
