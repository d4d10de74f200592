"""The ranks' store, which rank 0 serves only on the address that ranks were told.

torch's own store would listen on every interface.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from llmexp.record.process import STORE_FD

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

# Other ranks may measure long after rank 0 has finished; a rank that hangs is ended from outside.
PATIENCE = timedelta(days=30)

_served: list[TCPStore] = []


def serve_store() -> None:
    """Let rank 0 serve the store that all ranks find at MASTER_ADDR by env://.

    Does nothing where torchrun's agent serves one, or where this process is no rank.
    """
    own = os.environ
    if "MASTER_PORT" not in own or own.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    # With these variables torch's env:// leaves the store to somebody else on rank 0 too.
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
    """Return a new connection to the store, one for each thread; reads wait up to `patience` for a key."""
    from torch import distributed

    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return distributed.TCPStore(*where, None, False, patience, wait_for_workers=False)  # type: ignore[attr-defined]


def take_leave() -> None:
    """Tell the store that this rank needs nobody any more; the rank that serves it waits for all others.

    Call it before the rank ends without error.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    with suppress(RuntimeError):  # the store is gone where a rank has failed
        store = connection(PATIENCE)
        store.set(f"llmexp/left.{os.environ['RANK']}", "")
        if _served:
            store.wait([f"llmexp/left.{rank}" for rank in range(int(os.environ["WORLD_SIZE"]))])
