"""Where ranks meet: a store that rank 0 serves on the one address that they were told, where torch's own would listen on every interface."""

from __future__ import annotations

import os
import socket

from llmexp.record.process import STORE_FD

_served: list[object] = []


def serve_store() -> None:
    """Let rank 0 hold what all ranks find at MASTER_ADDR by env://; nothing where torchrun's agent holds one, or this process is no rank."""
    own = os.environ
    if "MASTER_PORT" not in own or own.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    # By which torch's env:// leaves the store of rank 0, too, to somebody else.
    own.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    if own["RANK"] != "0":
        return
    from torch import distributed

    address, port = own["MASTER_ADDR"], int(own["MASTER_PORT"])
    descriptor = int(own.pop(STORE_FD)) if STORE_FD in own else socket.create_server((address, port)).detach()
    _served.append(distributed.TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor))  # type: ignore[attr-defined]
