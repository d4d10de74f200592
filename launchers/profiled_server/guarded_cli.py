"""`transformers serve` that answers whoever has its key: any user of the machine reaches its port.

    LLMEXP_SERVER_KEY=… python -m llmexp.launchers.profiled_server.guarded_cli serve MODEL …

It has routes that load, unload and reset models, and knows no key by itself.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from functools import wraps
from hmac import compare_digest
from typing import Any

KEY = "LLMEXP_SERVER_KEY"
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]


class Guard:
    """An ASGI application that answers 401 to requests without the key, and hands on all others."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], key: str) -> None:
        self._app, self._wanted = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan" or compare_digest(_authorization(scope), self._wanted):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})


def ask_for_key() -> None:
    """Have the server that `transformers serve` builds ask for the key of this process's environment, if it has one."""
    from transformers.cli.serving import server

    build, key = server.build_server, os.environ.get(KEY)

    @wraps(build)
    def guarded(*args: Any, **options: Any) -> Any:
        app = build(*args, **options)
        app.add_middleware(Guard, key=key)
        return app

    if key:
        server.build_server = guarded


def _authorization(scope: Scope) -> bytes:
    return next((value for name, value in scope["headers"] if name == b"authorization"), b"")


def main() -> None:
    """Serve as `transformers` does, with its words."""
    from transformers.cli.transformers import main as serve

    ask_for_key()
    serve()


if __name__ == "__main__":
    main()
