"""The question whether a server that runs already answers from this machine."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from llmexp.launch.server_address import API_KEY, ServerAddress
from llmexp.record.reading import plain

ANSWER_S = 10.0
_KEY_REFUSED = (401, 403)
_BROKEN = 500
_GRACE_S = 0.5


def why_no_answer(url: str, path: str, headers: Mapping[str, str], within_s: float = ANSWER_S) -> str | None:
    """Return why a server cannot be measured, in one line; None where it answers GET.

    An answer is one that says neither that it is broken (500 and above) nor that it wants another key: servers of one
    protocol have different routes for this, and one that lacks the route says 404.
    """
    address = ServerAddress.of(url)
    try:
        status = _status(address, path, headers, within_s)
    except (OSError, HTTPException) as error:
        return f"{url} does not answer from here: {plain(str(error).strip())}"
    if status in _KEY_REFUSED:
        return f"{url} answers {status}: it refuses {API_KEY}" if headers else f"{url} answers {status}: set {API_KEY}"
    return f"{url} answers {status} to GET {path}" if status >= _BROKEN else None


def _status(address: ServerAddress, path: str, headers: Mapping[str, str], within_s: float) -> int:
    connection = (
        HTTPSConnection(address.host, address.port, timeout=within_s, context=ssl.create_default_context())
        if address.is_tls
        else HTTPConnection(address.host, address.port, timeout=within_s)
    )
    try:
        with deadline(connection, within_s):
            connection.request("GET", address.below + path, headers=dict(headers))
            return connection.getresponse().status
    finally:
        connection.close()


@contextlib.contextmanager
def deadline(connection: HTTPConnection, within_s: float) -> Iterator[None]:
    """Give up what is done with a connection in the block, and raise TimeoutError, where it takes longer.

    A timeout of the connection is of each byte: a server that sends one a second would be waited for without end.
    """
    late = threading.Event()

    def give_up() -> None:
        late.set()
        with contextlib.suppress(OSError):
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(within_s + _GRACE_S, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, HTTPException):
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError(f"no whole answer within {within_s:g} s")
