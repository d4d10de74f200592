"""The question whether a server that runs already answers from this machine."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from llmexp.plan.server_address import API_KEY, ServerAddress

ANSWER_S = 10.0
_KEY_REFUSED = (401, 403)
_BROKEN = 500


def why_no_answer(url: str, path: str, headers: Mapping[str, str], within_s: float = ANSWER_S) -> str | None:
    """Return why a server cannot be measured, in one line; None where it answers GET.

    An answer is one that says neither that it is broken (500 and above) nor that it wants another key: servers of one
    protocol have different routes for this, and one that lacks the route says 404.
    """
    address = ServerAddress.of(url)
    try:
        status = _status(address, path, headers, within_s)
    except (OSError, HTTPException) as error:
        return f"{url} does not answer from here: {error}"
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
        connection.request("GET", address.below + path, headers=dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()
