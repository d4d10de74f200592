"""A server that runs already: what is asked of it, and what is said where it does not answer."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from threading import Event, Thread

import pytest
from protocol_server import server

from llmexp.errors import ConfigError, ServerHungError, ServerNotReadyError
from llmexp.launch.server_address import API_KEY, ServerAddress, key_headers
from llmexp.launch.server_answer import why_no_answer
from llmexp.launchers.serving.server.running_server import RunningServer
from llmexp.record.plan import Command
from llmexp.serving.plan.server_plan import RequestForm, ServerPlan

KEY = "made-up-key-0123"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(API_KEY, raising=False)


@pytest.fixture
def address() -> Iterator[str]:
    found: ThreadingHTTPServer = server(0, "ids")
    Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{found.server_address[1]}/v1"
    found.shutdown()
    found.server_close()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens, and nobody can meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def running(url: str, ready: str = "/health") -> RunningServer:
    form = RequestForm.completions(token_ids=True)
    return RunningServer(ServerPlan(command=Command(argv=[]), address=url, ready=ready, form=form))


@pytest.mark.parametrize("ready", ["/health", "/a/route/that/it/lacks"])
def test_a_server_that_answers_is_measured_as_it_is(address: str, ready: str) -> None:
    with running(address, ready) as found:
        assert found.wait_ready() is None, "it was not started here"
        found.check()
        found.check_serving("now", 60)
        assert found.pid is None, "its processes are not here"
        assert select.select([found], [], [], 0)[0] == []


def test_a_server_that_does_not_answer_is_told_in_one_line(nobody: str) -> None:
    with running(nobody) as found:
        with pytest.raises(ServerNotReadyError, match=rf"^serve\.address={nobody} does not answer from here: .*$"):
            found.wait_ready()
        with pytest.raises(ServerHungError, match=r"^the server has stopped serving: http://127.*$"):
            found.check_serving("now", 5)


def test_a_silent_server_is_given_up(nobody: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        why = why_no_answer(f"http://127.0.0.1:{silent.getsockname()[1]}", "/health", {}, within_s=0.2)
    assert why
    assert "does not answer from here: timed out" in why


ENDLESS = {
    "a byte at a time": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "a line at a time": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "continue for ever": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.fixture
def endless(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that begins an answer, and goes on with it for as long as the test lasts."""
    begin, more = request.param
    ended = Event()

    def serve(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                connection.sendall(begin)
                while not ended.wait(0.05):
                    connection.sendall(more)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=serve, args=(listening,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        ended.set()  # where `more` is empty, sending it never fails


@pytest.mark.parametrize("endless", ENDLESS.values(), ids=list(ENDLESS), indirect=True)
def test_a_server_whose_answer_has_no_end_is_given_up(endless: str) -> None:
    assert "does not answer from here: " in str(why_no_answer(endless, "/health", {}, within_s=0.3))


@pytest.mark.parametrize("endless", [(b"\x1b]0;mine\x07 no HTTP\r\n\r\n", b"")], indirect=True)
def test_what_a_terminal_would_obey_is_not_repeated(endless: str) -> None:
    why = str(why_no_answer(endless, "/health", {}))
    assert "mine" in why
    assert why.isprintable()


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (200, {}, None),
        (404, {}, None),
        (401, {}, f"answers 401: set {API_KEY}"),
        (403, {"Authorization": f"Bearer {KEY}"}, f"answers 403: it refuses {API_KEY}"),
        (503, {}, "answers 503 to GET /health"),
    ],
)
def test_what_an_answer_means(status: int, headers: dict[str, str], expected: str | None, monkeypatch) -> None:
    monkeypatch.setattr("llmexp.launch.server_answer._status", lambda *_: status)
    found = why_no_answer("http://here:1", "/health", headers)
    assert found == (expected and f"http://here:1 {expected}")


def test_the_key_of_the_environment_goes_into_a_header(monkeypatch: pytest.MonkeyPatch, nobody: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of another server")
    assert key_headers() == {}, "a key for OpenAI is no key for any server"
    monkeypatch.setenv(API_KEY, f"{KEY}\n")
    with running(nobody) as found:
        assert found.headers == {"Authorization": f"Bearer {KEY}"}
    monkeypatch.setenv(API_KEY, f"{KEY}\r\nX: y")
    with pytest.raises(ConfigError, match=f"^{API_KEY} has characters") as refused:
        key_headers()
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://here:8000", ("here:8000", False, "")),
        ("https://here/v1", ("here:443", True, "")),
        ("http://[::1]:80/below/v1/", ("[::1]:80", False, "/below")),
    ],
)
def test_an_address_is_read(text: str, expected: tuple[str, bool, str]) -> None:
    found = ServerAddress.of(text)
    assert (found.authority, found.is_tls, found.below) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("here:8000", "expected http:// or https://, a host and a port"),
        ("http://", "expected http://"),
        ("http://here:high", "Port"),
        (f"http://here/?key={KEY}", f"leave the key out, because addresses are recorded: export {API_KEY}"),
        (f"http://me:{KEY}@here", "leave the key out"),
    ],
)
def test_what_is_no_address_is_refused_without_repeating_a_key(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="address") as refused:
        ServerAddress.of(text)
    assert reason in str(refused.value)
    assert KEY not in str(refused.value)
