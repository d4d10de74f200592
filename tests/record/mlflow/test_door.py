"""MLflow's page is its owner's: what a request without the token meets, and what is served beside the store."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from http.cookiejar import CookieJar
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from patience import HANG_S

from llmexp.record.mlflow.door import Door

TOKEN, NOBODY = "right", 65534
SERVE = """
import sys
from pathlib import Path
from llmexp.record.mlflow import serve_ui
from llmexp.schema import TrackingConfig
sys.exit(serve_ui(TrackingConfig(name="mlflow"), int(sys.argv[1]), Path(sys.argv[2])))
"""
JSON = {"Content-Type": "application/json"}


def attack(address: str, place: str) -> list[int]:
    """Try as another user of the machine to see, to make an experiment with its own place of artifacts, to write."""
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    def status(path: str, body: Mapping[str, Any] | None = None, **headers: str) -> int:
        asked = urllib.request.Request(address + path, body and json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(asked, timeout=HANG_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    created = {"name": "mine", "artifact_location": place}
    return [
        status("/"),
        status(f"/?token={NOBODY}"),
        status("/health"),
        status("/", Cookie=f"llmexp_ui_{address.rpartition(':')[2]}=wrong"),
        status("/", Authorization="Bearer wrong"),
        status("/ajax-api/2.0/mlflow/experiments/search?max_results=5"),
        status("/api/2.0/mlflow/experiments/create", created, **JSON),
        status("/get-artifact?path=a&run_id=b"),
        status("/static-files/index.html"),
        status("/graphql", {"query": "{}"}, **JSON),
    ]


@dataclass
class Page:
    """A page that is served, as `llmexp ui` prints it, and its store's folder."""

    address: str
    token: str
    outputs: Path

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.address}/{path}", body and json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=HANG_S) as answer:
            return answer.read()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Page]:
    """One for all tests: MLflow's server takes five seconds to start."""
    outputs = tmp_path_factory.mktemp("outputs")
    shutil.copy(empty_store, outputs / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVE, str(port), str(outputs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            printed = urllib.parse.urlsplit(server.stdout.readline().split()[2])
            token = dict(urllib.parse.parse_qsl(printed.query))["token"]
            yield Page(f"http://{printed.netloc}", token, outputs)
        finally:
            server.terminate()
            server.wait(HANG_S)


def test_another_user_sees_and_changes_nothing(page: Page, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    with ProcessPoolExecutor(1, get_context("fork")) as another:
        assert another.submit(attack, page.address, f"file://{tmp_path}/place").result(HANG_S) == [401] * 10
    assert not (tmp_path / "place").exists()
    store = MlflowClient(f"sqlite:///{page.outputs}/mlflow.db")
    assert "mine" not in [one.name for one in store.search_experiments()]


def test_a_browser_gives_the_token_once_and_then_has_a_cookie(page: Page) -> None:
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar := CookieJar()))
    with browser.open(f"{page.address}/?token={page.token}", timeout=HANG_S) as answer:
        assert answer.url == f"{page.address}/"
        assert b"MLflow" in answer.read()
    (cookie,) = jar
    assert (cookie.value, cookie.has_nonstandard_attr("HttpOnly")) == (page.token, True)
    with browser.open(f"{page.address}/health", timeout=HANG_S) as answer:
        assert answer.read() == b"OK"


def test_mlflows_own_clients_have_the_token_as_bearer(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", page.token)
    client = MlflowClient(page.address)
    assert "Default" in [one.name for one in client.search_experiments()]


def test_artifacts_beside_the_store_are_served_and_no_others(page: Page, tmp_path: Path) -> None:
    """Neither a place that the store names elsewhere, nor a link in its own folder."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{page.outputs}/mlflow.db")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("hunter2")
    own = client.create_experiment("own", f"file://{page.outputs}/mlartifacts/own")
    elsewhere = client.create_experiment("elsewhere", f"file://{secret}")
    runs = {name: client.create_run(place).info for name, place in (("own", own), ("elsewhere", elsewhere))}
    artifacts = Path(urllib.parse.urlsplit(runs["own"].artifact_uri).path)
    artifacts.mkdir(parents=True)
    (artifacts / "report.md").write_text("fine")
    (artifacts / "link").symlink_to(secret / "key")
    (artifacts / "folder").symlink_to(secret)

    def get(name: str, path: str) -> bytes:
        return page.ask(f"get-artifact?run_id={runs[name].run_id}&path={path}")

    assert get("own", "report.md") == b"fine"
    listed = page.ask(f"ajax-api/2.0/mlflow/artifacts/list?run_id={runs['own'].run_id}")
    assert [file["path"] for file in json.loads(listed)["files"]] == ["report.md"]
    Path(urllib.parse.urlsplit(runs["elsewhere"].artifact_uri).path).mkdir(parents=True)
    (Path(urllib.parse.urlsplit(runs["elsewhere"].artifact_uri).path) / "key").write_text("hunter2")
    for name, path in (("own", "link"), ("own", "folder/key"), ("elsewhere", "key")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(name, path)
        assert b"hunter2" not in refused.value.read()


@pytest.fixture
def met() -> Callable[..., list[dict[str, Any]]]:
    """Ask a door before an application that answers 200."""
    import asyncio

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    def ask(query: str = "", kind: str = "http", path: str = "/", **headers: str) -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        scope = {
            "type": kind,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            "server": ("127.0.0.1", 5000),
        }

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {}

        asyncio.run(Door(TOKEN, lambda: behind)(scope, receive, send))
        return sent

    return ask


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"cookie": f"llmexp_ui_5000={TOKEN}"}, 200),
        ({"cookie": f"other=1; llmexp_ui_5000={TOKEN}"}, 200),
        ({"authorization": f"Bearer {TOKEN}"}, 200),
        ({"authorization": f"bearer {TOKEN}"}, 200),
        ({"cookie": f"llmexp_ui_5001={TOKEN}"}, 401),
        ({"cookie": "llmexp_ui_5000="}, 401),
        ({"cookie": "\x00;=;=;"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": "Bearer é"}, 401),
        ({}, 401),
    ],
)
def test_only_the_token_opens(met: Callable[..., Any], headers: dict[str, str], status: int) -> None:
    assert met(**headers)[0]["status"] == status


def test_an_address_with_the_token_leads_to_the_one_without_it_on_this_host(met: Callable[..., Any]) -> None:
    begin, _ = met(f"a=b&token={TOKEN}", path="//elsewhere.invalid/x")
    headers = dict(begin["headers"])
    assert begin["status"] == 303
    assert headers[b"location"] == b"/elsewhere.invalid/x?a=b"
    assert headers[b"set-cookie"] == f"llmexp_ui_5000={TOKEN}; Path=/; HttpOnly; SameSite=Strict".encode()


def test_a_websocket_without_the_token_is_closed_and_the_start_passes(met: Callable[..., Any]) -> None:
    assert met(kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert met(kind="lifespan")[0]["status"] == 200
