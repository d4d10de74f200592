"""torchft's servers on the loopback only.

torchft's own listen on every interface, need IPv6, and tell others the machine's name, which may not resolve.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

from torchft import manager
from torchft.checkpointing import http_transport

from llmexp.launchers.torchft.lives import LOOPBACK


class _Server(http_transport._IPv6HTTPServer):
    address_family = socket.AF_INET

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        super().__init__((LOOPBACK, address[1]), handler)


class _Transport(http_transport.HTTPTransport):
    def address(self) -> str:
        """Return where others find this replica's state."""
        return f"http://{LOOPBACK}:{self._server.socket.getsockname()[1]}/checkpoint/"


def manager_on_loopback(timeout: timedelta, **options: Any) -> Any:
    """Return a Manager of torchft whose servers only this machine reaches."""
    server = manager.ManagerServer
    http_transport._IPv6HTTPServer = _Server
    manager.ManagerServer = lambda **told: server(**told | {"bind": f"{LOOPBACK}:0"})
    transport = _Transport(timeout=timeout, num_chunks=0)
    return manager.Manager(timeout=timeout, checkpoint_transport=transport, hostname=LOOPBACK, **options)
