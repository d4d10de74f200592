"""One client's loads on one server, point after point; a server that ends or hangs ends the load at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from llmexp.errors import ServerError
from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.connection import Patience
from llmexp.launchers.serving.load import Load, Request
from llmexp.launchers.serving.load_requests import NO_SOURCE, requests_of
from llmexp.launchers.serving.prompting.source import PromptSource
from llmexp.launchers.serving.server.process import ASKED_S
from llmexp.launchers.serving.server.running_server import AnyServer
from llmexp.launchers.serving.watch.server_watch import ServerWatch
from llmexp.record.duration import limit
from llmexp.serving.plan.load_points import due_s
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.record.requests import RequestSample

WATCH_S = 1.0
Done = Callable[[RequestSample], None]


class TerminatedError(Exception):
    """SIGTERM came, and every request that was at work has its record."""


class Session:
    """Puts a plan's loads on a server; every request has a record, however its load ends."""

    def __init__(
        self,
        plan: ServingPlan,
        server: AnyServer,
        done: Done,
        watch: ServerWatch,
        source: PromptSource = NO_SOURCE,
    ) -> None:
        self._plan, self._server, self._done, self._watched_by = plan, server, done, watch
        self._source = source
        # Of the loads that are over: indices count over all loads of a run.
        self._requests = 0

    async def measure(self, point: LoadPoint) -> None:
        """Warm the server up for a load point, then measure it; raises ServerError where the server ends or hangs."""
        # The watch says when a server hangs; a request may wait in a queue for long.
        limit_s = self._plan.config.measure.timeout_s
        patience = Patience(silent_s=limit_s, answer_s=limit_s)
        async with Client(Address.of(self._server.url), self._server.headers, patience) as client:
            form = self._plan.server.form
            every = requests_of(self._plan, point, client, form, source=self._source)
            for requests in (every[: point.warmup], every[point.warmup :]):
                load = Load(client, form, self._of(point), self._watched_by.watched.origin_s)
                self._watched_by.look()
                await self._watched(client, put(load, self._plan, point, requests))
                # A server may have turned down the last requests because it was about to end.
                self._server.check_serving(f"after the load {point}")
            self._watched_by.look()
            self._requests += len(every) * point.turns

    def _of(self, point: LoadPoint) -> Done:
        before = self._requests

        def done(sample: RequestSample) -> None:
            sample.point, sample.index = point.number, before + sample.index
            self._done(sample)

        return done

    async def _watched(self, client: Client, load: Coroutine[Any, Any, None]) -> None:
        """Run a load until it is complete; where the server ends or hangs, end it and raise ServerError.

        Raises TerminatedError where SIGTERM ended it.
        """
        loop, under_way = asyncio.get_running_loop(), asyncio.ensure_future(load)
        loop.add_reader(self._server.fileno(), under_way.cancel)
        loop.add_signal_handler(signal.SIGTERM, under_way.cancel)
        watch = asyncio.ensure_future(self._watch(client, under_way))
        was_ended = False
        try:
            await under_way
        except asyncio.CancelledError:
            was_ended = True
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_reader(self._server.fileno())
            watch.cancel()
        if was_ended:
            if watch.done():
                watch.result()
            self._server.check()
            raise TerminatedError

    async def _watch(self, client: Client, load: asyncio.Future[None]) -> None:
        """End the wait for a server that is silent, so that it does not hold up the load for ever."""
        limit_s, given_up_s = self._plan.config.serve.silent_timeout_s, None
        while True:
            await asyncio.sleep(min(WATCH_S, limit_s))
            if client.silent_s < limit_s:
                continue
            try:
                await self._break_silence(client, is_first=client.heard_s != given_up_s)
            except ServerError:
                load.cancel()
                raise
            given_up_s = client.heard_s

    async def _break_silence(self, client: Client, is_first: bool) -> None:
        """Give up the requests at work: the server may have lost only these, for example by half-open connections.

        Raises ServerError where it has ended, does not answer when asked, or has answered no request since the last
        silence either.
        """
        limit_s = self._plan.config.serve.silent_timeout_s
        silence, within_s = limit("serve.silent_timeout_s", limit_s), min(limit_s, ASKED_S)
        await asyncio.to_thread(self._server.check_serving, f"and has sent nothing to anyone for {silence}", within_s)
        if not is_first:
            route = self._server.plan.ready
            raise self._server.hung(f"it answers GET {route}, but no request, twice for {silence}")
        client.give_up(f"the server sent nothing to anyone for {silence}, although it answers when asked")


async def put(load: Load, plan: ServingPlan, point: LoadPoint, requests: list[Request]) -> None:
    """Send requests as the load point has it."""
    if point.concurrency:
        await load.closed(requests, point.concurrency)
        return
    due = due_s(point, plan.config.serve, plan.config.seed, len(requests))
    await load.open(zip(due, requests, strict=True))
