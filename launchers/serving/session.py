"""One client's loads on one server, point after point; a server that ends or hangs ends the load at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from llmexp.errors import ServerError
from llmexp.launchers.serving.address import Address
from llmexp.launchers.serving.asked import requests_of
from llmexp.launchers.serving.client import Client
from llmexp.launchers.serving.connection import Patience
from llmexp.launchers.serving.load import Load, Request
from llmexp.launchers.serving.running_server import AnyServer
from llmexp.launchers.serving.server_watch import ServerWatch
from llmexp.plan.load_points import due_s
from llmexp.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.record.requests import RequestSample

WATCH_S = 1.0
Done = Callable[[RequestSample], None]


class Session:
    """Puts a plan's loads on a server; every request has a record, however its load ends."""

    def __init__(self, plan: ServingPlan, server: AnyServer, done: Done, watch: ServerWatch) -> None:
        self._plan, self._server, self._done, self._watched_by = plan, server, done, watch

    async def measure(self, point: LoadPoint) -> None:
        """Warm the server up for a load point, then measure it; raises ServerError where the server ends or hangs."""
        # The watch says when a server hangs; a request may wait in a queue for long.
        limit_s = self._plan.config.measure.timeout_s
        patience = Patience(silent_s=limit_s, answer_s=limit_s)
        async with Client(Address.of(self._server.url), self._server.headers, patience) as client:
            form = self._plan.server.form
            every = requests_of(self._plan, point, client, form)
            for requests in (every[: point.warmup], every[point.warmup :]):
                load = Load(client, form, self._of(point), self._watched_by.watched.origin_s)
                self._watched_by.look()
                await self._watched(client, put(load, self._plan, point, requests))
            self._watched_by.look()

    def _of(self, point: LoadPoint) -> Done:
        def done(sample: RequestSample) -> None:
            sample.point = point.number
            self._done(sample)

        return done

    async def _watched(self, client: Client, load: Coroutine[Any, Any, None]) -> None:
        """Run a load until it is complete; where the server ends or hangs, end it and raise ServerError."""
        loop, under_way = asyncio.get_running_loop(), asyncio.ensure_future(load)
        loop.add_reader(self._server.fileno(), under_way.cancel)
        watch = asyncio.ensure_future(self._watch(client, under_way))
        try:
            await under_way
        except asyncio.CancelledError:
            self._server.check()
            if watch.done():
                watch.result()
            raise
        finally:
            loop.remove_reader(self._server.fileno())
            watch.cancel()

    async def _watch(self, client: Client, load: asyncio.Future[None]) -> None:
        """Ask the server whether it serves where it has been silent for long."""
        limit_s = self._plan.config.serve.silent_timeout_s
        begin_s = time.perf_counter()
        while True:
            await asyncio.sleep(WATCH_S)
            if time.perf_counter() - max(begin_s, client.last_heard_s) < limit_s:
                continue
            try:
                await asyncio.to_thread(self._server.check_serving, limit_s)
            except ServerError:
                load.cancel()
                raise
            begin_s = time.perf_counter()


async def put(load: Load, plan: ServingPlan, point: LoadPoint, requests: list[Request]) -> None:
    """Send requests as the load point has it."""
    if point.concurrency:
        await load.closed(requests, point.concurrency)
        return
    due = due_s(point, plan.config.serve, plan.config.seed, len(requests))
    await load.open(zip(due, requests, strict=True))
