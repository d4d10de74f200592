"""MLflow's server behind a token: MLflow has no login, and every user of a machine reaches its loopback interface.

`mlflow server --app-name llmexp` serves `app`, whose token and folder the environment gives.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

APP = "llmexp"
TOKEN_VARIABLE, FOLDER_VARIABLE = "LLMEXP_UI_TOKEN", "LLMEXP_UI_FOLDER"
PARAMETER = "token"
_REFUSED = b"This page is of whoever started it: open the whole address that `llmexp ui` printed.\n"
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Door:
    """An ASGI application that lets those in who have the token: in the address once, then in a cookie, or as bearer.

    The application behind it is made at the first call, as MLflow's command looks at this one before it starts.
    """

    def __init__(self, token: str, make: Callable[[], Any]) -> None:
        self._token, self._make = token, make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, keep its token in a cookie, or refuse it."""
        kind = scope["type"]
        if kind not in ("http", "websocket") or self._is_known(scope):
            await self._behind(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif self._is_right(dict(_query(scope)).get(PARAMETER, "")):
            cookie = f"{_cookie(scope)}={self._token}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(send, 303, b"", (b"location", _without_token(scope)), (b"set-cookie", cookie.encode()))
        else:
            await _answer(send, 401, _REFUSED)

    @cached_property
    def _behind(self) -> Any:
        return self._make()

    def _is_known(self, scope: Scope) -> bool:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        kind, _, bearer = headers.get(b"authorization", "").partition(" ")
        try:
            kept = SimpleCookie(headers.get(b"cookie", "")).get(_cookie(scope))
        except CookieError:
            kept = None
        return (kind.lower() == "bearer" and self._is_right(bearer.strip())) or bool(
            kept and self._is_right(kept.value)
        )

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _cookie(scope: Scope) -> str:
    """Name the cookie by the port: a browser keeps those of all ports of a host together."""
    _, port = scope.get("server") or ("", "")
    return f"llmexp_ui_{port}"


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)


def _without_token(scope: Scope) -> bytes:
    """Return the address without the token; the browser keeps the part after #. A path is no other host."""
    rest = urlencode([(name, value) for name, value in _query(scope) if name != PARAMETER])
    path = "/" + quote(scope["path"].lstrip("/\\"))
    return f"{path}?{rest}".encode() if rest else path.encode()


def write_plugin(folder: Path) -> None:
    """Write a distribution that names `app` to MLflow, whose command finds an application by a plugin's name only.

    llmexp's own metadata would not do: a checkout may hold older ones.
    """
    info = folder / f"{APP}_door-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {APP}-door\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[mlflow.app]\n{APP} = {__name__}:app\n")


async def _answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    plain = ((b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"))
    await send({"type": "http.response.start", "status": status, "headers": [*plain, *headers]})
    await send({"type": "http.response.body", "body": body})


def _mlflow() -> Any:
    from llmexp.record.mlflow.confined import confine_to

    if folder := os.environ.get(FOLDER_VARIABLE):
        confine_to(folder)
    from mlflow.server.fastapi_app import app as mlflow_app

    return mlflow_app


app = Door(os.environ.get(TOKEN_VARIABLE) or os.urandom(32).hex(), _mlflow)
