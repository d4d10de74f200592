"""A store of torch that listens on the loopback only; torch's own would listen on every interface."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from torch import distributed

from llmexp.launchers.torchft.lives import LOOPBACK

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]


def served_store() -> tuple[TCPStore, int]:
    """Serve a new store from this process, as long as the object is kept; return it and its port."""
    server = socket.create_server((LOOPBACK, 0))
    port = server.getsockname()[1]
    store = distributed.TCPStore(  # type: ignore[attr-defined]
        LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=server.detach()
    )
    return store, port
