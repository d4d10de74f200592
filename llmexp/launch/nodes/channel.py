"""A connection between two machines of a run that rejects messages of strangers.

Each side first sends a number that it never used before. Every later message carries a code (HMAC-SHA-256, RFC 2104)
over its text, its place in the order, both numbers and the sweep's secret. So nobody without the secret can forge a
message, repeat one, or send one back.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator

from llmexp.launch.nodes.messages import MESSAGE, NodeMessage

# A machine that vanished silently is detected after idle + interval x count = 20 s.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
# The time that a connected machine may take for its first message.
PATIENCE_S = 10.0
LONGEST_BYTES = 2**20


class Channel:
    """Carries messages between owners of the secret.

    `alive` is true until the other side has gone, or sends anything that is not such a message.
    """

    def __init__(self, connection: socket.socket, secret: bytes) -> None:
        self._connection, self._secret, self._read, self.alive = connection, secret, b"", True
        self._number, self._others = secrets.token_hex(16).encode(), b""
        self._sent = self._taken = 0
        self._heard: deque[NodeMessage] = deque()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._send(self._number)

    def fileno(self) -> int:
        """Return a descriptor for select: readable when a message has come or the other side has gone."""
        return self._connection.fileno()

    @property
    def own_address(self) -> str:
        """The address by which this machine has reached the other side, or was reached."""
        return str(self._connection.getsockname()[0])

    def say(self, message: NodeMessage) -> None:
        """Send a message; nothing is sent where the other side has gone or does not give its number in time."""
        self._await(lambda: bool(self._others), PATIENCE_S)
        if self.alive:
            words = message.model_dump_json().encode()
            self._send(self._code(self._number + self._others, self._sent, words) + b" " + words)
            self._sent += 1

    def heard(self) -> Iterator[NodeMessage]:
        """Yield new messages; this blocks where there are none, so call it when the channel is readable."""
        self._receive()
        while self._heard:
            yield self._heard.popleft()

    def wait(self, within_s: float) -> NodeMessage | None:
        """Return the next message; None where none comes in time or the other side goes."""
        self._await(lambda: bool(self._heard), within_s)
        return self._heard.popleft() if self._heard else None

    def close(self) -> None:
        """Close the connection; the other side notices."""
        self.alive = False
        self._connection.close()

    def _await(self, come: Callable[[], object], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not come() and self.alive and (left := deadline - time.monotonic()) > 0:
            if select.select([self], [], [], left)[0]:
                self._receive()

    def _receive(self) -> None:
        try:
            got = self._connection.recv(65536)
            *lines, self._read = (self._read + got).split(b"\n")
            for line in lines:
                self._take(line)
            self.alive = bool(got) and len(self._read) < LONGEST_BYTES
        except (OSError, ValueError):  # ValueError: a stranger
            self.alive = False

    def _take(self, line: bytes) -> None:
        """Accept the other side's number, then its messages; raises ValueError for anything else."""
        if not self._others:
            if len(line) != len(self._number) or line == self._number:
                raise ValueError
            self._others = line
            return
        code, _, words = line.partition(b" ")
        if not hmac.compare_digest(code, self._code(self._others + self._number, self._taken, words)):
            raise ValueError
        self._taken += 1
        self._heard.append(MESSAGE.validate_json(words))

    def _code(self, numbers: bytes, place: int, words: bytes) -> bytes:
        return hmac.new(self._secret, b"%b %d %b" % (numbers, place, words), "sha256").hexdigest().encode()

    def _send(self, line: bytes) -> None:
        try:
            self._connection.sendall(line + b"\n")
        except OSError:
            self.alive = False
