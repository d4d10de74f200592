"""Profiles a server under a load of its own, after all that is measured: a profiler makes a server slower.

Its profiler is on in two windows: one from the load's begin, which has the prefill of its first requests, and one from
the moment at which every request at work has its first token, so that what the server does is decode.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import Any

from llmexp.errors import ServerError
from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.connection import Patience, TransferError
from llmexp.launchers.serving.load import Load, run
from llmexp.launchers.serving.load_requests import requests_of
from llmexp.launchers.serving.prompting.source import PromptSource
from llmexp.launchers.serving.server.process import Server
from llmexp.launchers.serving.server.running_server import AnyServer
from llmexp.launchers.serving.session import Session, put
from llmexp.launchers.serving.watch.server_watch import ServerWatch
from llmexp.record.port import HOST
from llmexp.record.writing import write_atomically
from llmexp.serving.analysis.load_window import LoadWindow
from llmexp.serving.plan.server_plan import ProfilerRoutes
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.record.profiled_load import REQUESTS, TRACES, ProfiledLoad, profiled_load_path
from llmexp.serving.record.requests import RequestSample

# vLLM sums up its trace for half a minute before it answers; a server that needs longer than this will not answer.
ANSWERS_WITHIN_S = 600.0
LOOKS_EVERY_S = 0.005
# How vLLM and SGLang name the rank in a trace's file.
_RANK = re.compile(r"(?:rank|TP-?)(\d+)", re.IGNORECASE)
_WINDOW = re.compile(r"rank\d+\.\d+\.json\.gz")


class ProfilingError(Exception):
    """An error: the server's profiler did not do what it was asked."""


def profile(plan: ServingPlan, repeat: Path, server: AnyServer, watch: ServerWatch, source: PromptSource) -> None:
    """Put the last load point's load on the server once more, and profile it; a failure is a line of its record."""
    assert isinstance(server, Server)
    assert plan.server.profiler
    # The probes of a search have the numbers behind those of the plan, and no two loads share a prompt.
    probes = plan.config.serve.search.most_probes if plan.config.serve.search else 0
    point = plan.points[-1].model_copy(update={"number": len(plan.points) + probes})
    with (repeat / REQUESTS).open("a") as file:
        session = _ProfiledSession(plan, server, watch, repeat / TRACES, source)
        session.keep(lambda sample: file.write(sample.model_dump_json() + "\n"))
        problem = ""
        try:
            run(session.measure(point))
        except (ServerError, TransferError, ProfilingError, OSError, HTTPException) as error:
            problem = str(error).partition("\n")[0]
            print(f"the server could not be profiled: {error}", flush=True)
    write_atomically(profiled_load_path(repeat), session.record(problem).model_dump_json(indent=2))


class Profiler:
    """Starts and ends the profiler of a server, and gives what it wrote the names of llmexp's traces."""

    def __init__(self, routes: ProfilerRoutes, port: int, folder: Path, headers: Mapping[str, str]) -> None:
        self._routes, self._port, self._folder = routes, port, folder
        self._headers = {"content-type": "application/json", **headers}
        self._begin_s = 0.0
        self.windows_s: list[float] = []
        folder.mkdir(exist_ok=True)

    async def start(self) -> None:
        """Begin a window; raises ProfilingError and OSError."""
        place = str(self._folder.absolute())
        body = {name: place if given == "{trace}" else given for name, given in self._routes.start_body.items()}
        await asyncio.to_thread(self._post, self._routes.start, body)
        self._begin_s = time.perf_counter()

    async def stop(self) -> None:
        """End the window and name its traces rank<k>.<window>.json.gz; raises ProfilingError and OSError."""
        window_s = time.perf_counter() - self._begin_s
        await asyncio.to_thread(self._post, self._routes.stop, {})
        found = await self._written()
        for path in found:
            path.rename(self._named(_RANK.search(path.name)))
        self.windows_s.append(window_s)

    def _named(self, rank: re.Match[str] | None) -> Path:
        """Return the name of a rank's trace; replicas, which may count their ranks alike, follow each other."""
        wanted = int(rank[1]) if rank else 0
        names = (self._folder / f"rank{number}.{len(self.windows_s)}.json.gz" for number in count(wanted))
        return next(path for path in names if not path.exists())

    async def _written(self) -> list[Path]:
        """Wait until traces are there that have stopped growing; some servers answer before they have written."""
        until_s = time.perf_counter() + ANSWERS_WITHIN_S
        before: dict[Path, int] = {}
        while time.perf_counter() < until_s:
            new = [path for path in self._folder.glob("*.json.gz") if not _WINDOW.fullmatch(path.name)]
            sizes = {path: path.stat().st_size for path in new}
            if sizes and sizes == before and all(sizes.values()):
                return sorted(sizes)
            before = sizes
            await asyncio.sleep(0.1)
        raise ProfilingError(f"the server's profiler wrote no trace within {ANSWERS_WITHIN_S:.0f} s")

    def _post(self, route: str, body: dict[str, Any]) -> None:
        connection = HTTPConnection(HOST, self._port, timeout=ANSWERS_WITHIN_S)
        try:
            connection.request("POST", route, json.dumps(body), self._headers)
            answer = connection.getresponse()
            words = answer.read(500).decode(errors="replace")
        finally:
            connection.close()
        if answer.status != 200:
            raise ProfilingError(f"POST {route} was answered with status {answer.status}: {words}")


class _ProfiledSession(Session):
    """A load point whose server is profiled in two windows."""

    def __init__(
        self, plan: ServingPlan, server: Server, watch: ServerWatch, folder: Path, source: PromptSource
    ) -> None:
        super().__init__(plan, server, self._take, watch, source)
        assert plan.server.profiler
        self._profiler = Profiler(plan.server.profiler, server.port, folder, server.headers)
        self._samples: list[RequestSample] = []
        self._kept: Any = None

    def keep(self, kept: Any) -> None:
        """Have every record of a request given to a function too."""
        self._kept = kept

    def _take(self, sample: RequestSample) -> None:
        self._samples.append(sample)
        self._kept(sample)

    def record(self, problem: str) -> ProfiledLoad:
        """Return what became of the load."""
        measured = [sample for sample in self._samples if not sample.warmup]
        whole = [sample for sample in measured if not sample.problem]
        known = whole and all(sample.output_tokens is not None for sample in whole)
        return ProfiledLoad(
            load=str(self._plan.points[-1]),
            requests=len(whole),
            windows_s=self._profiler.windows_s,
            output_tokens_per_s=LoadWindow.of(measured).per_s(sum(each.amount for each in whole)) if known else None,
            problem=problem,
        )

    async def measure(self, point: LoadPoint) -> None:
        """Warm the server up, then profile it under the load."""
        limit_s = self._plan.config.measure.timeout_s
        patience = Patience(silent_s=limit_s, answer_s=limit_s)
        async with Client(Address.of(self._server.url), self._server.headers, patience) as client:
            every = requests_of(self._plan, point, client, self._plan.server.form, source=self._source)
            for requests in (every[: point.warmup], every[point.warmup :]):
                load = self._load(client, point)
                putting = put(load, self._plan, point, requests)
                is_warmup = bool(requests) and requests[0].is_warmup
                await self._watched(client, putting if is_warmup else self._profiled(load, putting))

    def _load(self, client: Client, point: LoadPoint) -> Load:
        return Load(client, self._plan.server.form, self._of(point), self._watched_by.watched.origin_s)

    async def _profiled(self, load: Load, putting: Any) -> None:
        """Put the load on the server, with the profiler on in its two windows."""
        await self._profiler.start()
        under_way = asyncio.ensure_future(putting)
        try:
            await self._window(under_way)
            while not under_way.done() and not _all_have_tokens(load):
                await asyncio.sleep(LOOKS_EVERY_S)
            if not under_way.done():
                await self._profiler.start()
                await self._window(under_way)
            await under_way
        finally:
            under_way.cancel()

    async def _window(self, under_way: asyncio.Future[None]) -> None:
        await asyncio.wait([under_way], timeout=self._plan.config.serve.profile_s)
        await self._profiler.stop()


def _all_have_tokens(load: Load) -> bool:
    """Tell whether requests are at work, and none of them waits for its first token."""
    return bool(load.at_work) and all(answer.times_s for answer in load.at_work)
