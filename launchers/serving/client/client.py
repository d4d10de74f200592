"""A client that keeps its connections: each request takes an idle one, or opens one more."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.connection import Answer, Connection, Patience, TransferError

# Below what servers wait before they close an idle connection (uvicorn 5 s, gunicorn 2 s): a request that is sent just
# then would be lost, and a request that is not known to be lost is never sent twice.
IDLE_LIMIT_S = 1.0
HIDDEN = "…"
# Fewer characters of a key at the end of a text are any text's.
_TELLING = 4


class Client:
    """Sends requests to one address, as many at a time as it is asked; used as an asynchronous context."""

    def __init__(self, address: Address, headers: Mapping[str, str] | None = None, patience: Patience | None = None):
        self.address = address
        self._headers = dict(headers or {})
        self._patience = patience or Patience()
        self._tls = ssl.create_default_context() if address.is_tls else None
        self._idle: list[Connection] = []
        self._at_work: set[Connection] = set()
        self._heard_s = 0.0
        self._peer: str | None = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def message(self, path: str, body: bytes) -> bytes:
        """Return the bytes of a request, to be made before it is due; raises ConfigError for a header with a break."""
        return self.address.message(path, body, self._headers)

    def without_secrets(self, text: str) -> str:
        """Return a server's words without what it was told in headers, such as a key that it repeats.

        Words that were cut off may end in the middle of a key.
        """
        for value in self._headers.values():
            for secret in filter(None, (value, value.removeprefix("Bearer "))):
                text = _without_beginning(text.replace(secret, HIDDEN), secret)
        return text

    @property
    def heard_s(self) -> float:
        """The time of time.perf_counter at which the server last sent anything; 0 before."""
        return max(self._heard_s, *(each.heard_s for each in self._at_work), 0.0)

    @property
    def silent_s(self) -> float:
        """For how long the server has sent nothing to anybody although a request is at work; 0 where none is."""
        if not self._at_work:
            return 0.0
        oldest_s = min(each.sent_s for each in self._at_work)
        return time.perf_counter() - max(self.heard_s, oldest_s)

    def give_up(self, problem: str) -> None:
        """End all requests that are at work, for this reason."""
        for connection in list(self._at_work):
            connection.give_up(problem)

    async def post(self, message: bytes, answer: Answer) -> None:
        """Send the bytes of a request and take in its answer; raises TransferError where there is no whole one."""
        connection = self._kept() or await self._opened()
        self._at_work.add(connection)
        try:
            await connection.exchange(message, answer)
        finally:
            self._at_work.discard(connection)
            self._heard_s = max(self._heard_s, connection.heard_s)
            if connection.is_reusable:
                self._idle.append(connection)
            else:
                connection.close()

    def _kept(self) -> Connection | None:
        """Return the connection that was used last, so that those that are not needed grow old."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and time.perf_counter() - connection.last_byte_s < IDLE_LIMIT_S:
                return connection
            connection.close()
        return None

    async def _opened(self) -> Connection:
        """Open a connection; the server's name is looked up until one is open, and not again."""
        loop, address, limit_s = asyncio.get_running_loop(), self.address, self._patience.connect_s
        try:
            async with asyncio.timeout(limit_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._patience),
                    self._peer or address.host,
                    address.port,
                    ssl=self._tls,
                    server_hostname=address.host if self._tls else None,
                )
        except TimeoutError:
            raise TransferError(f"{address.authority} accepted no connection within {limit_s:g} s") from None
        except OSError as error:
            raise TransferError(f"{address.authority} cannot be reached: {error}") from None
        self._peer = connection.peer
        return connection


def _without_beginning(text: str, secret: str) -> str:
    """Return a text without the beginning of a secret that stands at its very end."""
    for count in range(len(secret) - 1, _TELLING - 1, -1):
        if text.endswith(secret[:count]):
            return text[:-count] + HIDDEN
    return text
