"""The server that transformers builds, asked by its real application without the key that it was told."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import MagicMock

import pytest

from llmexp.launchers.profiled_server.guarded_cli import KEY, ask_for_key

ROUTES = [
    ("GET", "/health"),
    ("GET", "/v1/models"),
    ("POST", "/load_model"),
    ("POST", "/reset"),
    ("POST", "/v1/completions"),
    ("GET", "/docs"),
]


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Any:
    server = pytest.importorskip("transformers.cli.serving.server")
    monkeypatch.setattr(server, "build_server", server.build_server)
    monkeypatch.setenv(KEY, "right")
    ask_for_key()
    manager, state = MagicMock(), MagicMock()
    manager.get_gen_models.return_value = []
    return server.build_server(manager, *(MagicMock() for _ in range(5)), state)


def status(application: Any, method: str, path: str, *headers: tuple[bytes, bytes]) -> int:
    told: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [(b"content-type", b"application/json"), *headers], "http_version": "1.1", "scheme": "http"}
    asyncio.run(application(scope, receive, send))
    return int(told[0]["status"])


def test_whoever_lacks_the_key_loads_resets_and_asks_nothing(application: Any) -> None:
    assert {status(application, *route) for route in ROUTES} == {401}
    assert status(application, "GET", "/health", (b"authorization", b"Bearer wrong")) == 401
    assert status(application, "GET", "/v1/models", (b"authorization", b"Bearer right")) == 200


def test_every_route_that_the_server_has_is_behind_the_key(application: Any) -> None:
    paths = {route.path for route in application.routes}
    assert {"/load_model", "/health"} <= paths
    assert {status(application, "POST", path) for path in paths} == {401}
