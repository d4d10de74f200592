"""Where ranks meet: a store that rank 0 serves on the one address that they were told, where torch's own would listen on every interface."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from llmexp.record.process import STORE_FD

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

# Others may measure on long after rank 0 has, and what hangs is ended from outside.
PATIENCE = timedelta(days=30)

_served: list[TCPStore] = []


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
    store = distributed.TCPStore(  # type: ignore[attr-defined]
        address, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
    )
    _served.append(store)


def connection(patience: timedelta) -> TCPStore:
    """A connection of its own to that store, one a thread; reading waits so long until a key is set."""
    from torch import distributed

    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return distributed.TCPStore(*where, None, False, patience, wait_for_workers=False)  # type: ignore[attr-defined]


def take_leave() -> None:
    """Say that this rank needs nobody any more, to the store's own rank, which waits for all others. To be called before it ends well."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    with suppress(RuntimeError):  # gone, where a rank has failed
        store = connection(PATIENCE)
        store.set(f"llmexp/left.{os.environ['RANK']}", "")
        if _served:
            store.wait([f"llmexp/left.{rank}" for rank in range(int(os.environ["WORLD_SIZE"]))])
