"""The routes of a server's profiler: what is asked of them, what their traces are called, and what fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from llmexp.launchers.serving.profiling import Profiler, ProfilingError
from llmexp.serving.plan.server_plan import ProfilerRoutes

Answer = Callable[[str, dict[str, Any]], int]
KEY = {"authorization": "Bearer right"}


class Routes:
    """A server with routes of a profiler."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        routes = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                routes.asked.append((self.path, body))
                has_key = self.headers["authorization"] == KEY["authorization"]
                self.send_response(answer(self.path, body) if has_key else 401)
                self.send_header("content-length", "4")
                self.end_headers()
                self.wfile.write(b"said")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def routes() -> Iterator[Callable[[Answer], Routes]]:
    begun: list[Routes] = []

    def begin(answer: Answer) -> Routes:
        begun.append(Routes(answer))
        return begun[-1]

    yield begin
    for one in begun:
        one.server.shutdown()
        one.server.server_close()


def test_traces_are_named_by_rank_and_window(routes, tmp_path: Path) -> None:
    both = (
        "rank0.17.pt.trace.json.gz rank1.18.pt.trace.json.gz",
        "7-TP-0-DP-0.trace.json.gz 7-TP-0-DP-1.trace.json.gz",
    )
    names = iter(both)

    def answer(path: str, body: dict[str, Any]) -> int:
        for name in next(names).split() if path == "/stop_profile" else ():
            (tmp_path / "trace" / name).write_bytes(b"a trace")
        return 200

    server = routes(answer)
    profiler = Profiler(
        ProfilerRoutes(start_body={"output_dir": "{trace}", "steps": 3}), server.port, tmp_path / "trace", KEY
    )

    async def two_windows() -> None:
        for _ in range(2):
            await profiler.start()
            await profiler.stop()

    asyncio.run(two_windows())
    found = sorted(path.name for path in (tmp_path / "trace").iterdir())
    assert found == ["rank0.0.json.gz", "rank0.1.json.gz", "rank1.0.json.gz", "rank1.1.json.gz"]
    start = ("/start_profile", {"output_dir": str(tmp_path / "trace"), "steps": 3})
    assert server.asked == [start, ("/stop_profile", {})] * 2
    assert len(profiler.windows_s) == 2


def test_a_route_that_refuses_says_why(routes, tmp_path: Path) -> None:
    server = routes(lambda path, body: 404)
    profiler = Profiler(ProfilerRoutes(), server.port, tmp_path / "trace", KEY)
    with pytest.raises(ProfilingError, match=r"POST /start_profile was answered with status 404: said"):
        asyncio.run(profiler.start())


def test_a_profiler_that_writes_nothing_is_an_error(routes, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("llmexp.launchers.serving.profiling.ANSWERS_WITHIN_S", 0.3)
    server = routes(lambda path, body: 200)
    profiler = Profiler(ProfilerRoutes(), server.port, tmp_path / "trace", KEY)
    with pytest.raises(ProfilingError, match="wrote no trace"):
        asyncio.run(profiler.stop())
