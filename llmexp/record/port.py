"""A free port of this machine that no other program gets before the one that it is meant for."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


class Port:
    """A port of an address of this machine, given out by the kernel; as a context it is held until the block ends.

    Held, it is bound by a socket that does not listen: the kernel gives it to nobody who asks for any free port, and a
    server that binds with SO_REUSEADDR, as all that are built on asyncio do, may still listen at it on Linux. A server
    that binds without it needs a port that is not held, which another program may take first.
    """

    def __init__(self, hold: bool, address: str = HOST) -> None:
        family = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]
        self._socket: socket.socket | None = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((address, 0))
        self.number: int = self._socket.getsockname()[1]
        if not hold:
            self.release()

    def __enter__(self) -> Port:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Hold the port no longer."""
        if self._socket:
            self._socket.close()
            self._socket = None
