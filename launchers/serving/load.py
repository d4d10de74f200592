"""Sends requests when they are due, and gives the record of each as soon as it has ended.

An open load never waits for answers: a slow server gets its requests all the same, and their latency counts from when
they were due. A closed load keeps a number of requests at work; the next is due when one ends.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.completions import Completion
from llmexp.launchers.serving.client.connection import TransferError
from llmexp.serving.plan.server_plan import RequestForm
from llmexp.serving.record.requests import ENDED_AT_WORK, RequestSample

T = TypeVar("T")
# In a closed load, the pause after a request that got no answer at all: a server that has just ended is known to have
# by then, and does not turn down all that were to come.
UNANSWERED_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Request:
    """The bytes of a request (`Client.message`), and the tokens that it sends and asks for."""

    index: int
    message: bytes
    prompt_tokens: int
    output_tokens: int
    is_warmup: bool = False
    turn: int = 0
    next_turn: NextTurn | None = None
    """Of a conversation that goes on after this request."""
    pause_s: float = 0.0
    """From the answer's end until the next turn is due."""


# Makes the next request of a conversation from the answer, whole or not; raises ServerError where it tells no tokens.
NextTurn = Callable[[RequestSample], Request]


class Load:
    """Sends requests by one client; times in the records count from `origin_s` of time.perf_counter."""

    def __init__(
        self, client: Client, form: RequestForm, done: Callable[[RequestSample], None], origin_s: float | None = None
    ) -> None:
        self._client, self._form, self._done = client, form, done
        self.at_work: set[Completion] = set()
        self._origin_s = time.perf_counter() if origin_s is None else origin_s

    async def open(self, requests: Iterable[tuple[float, Request]]) -> None:
        """Send each request when it is due, in seconds from now and in this order, and wait for the last answer.

        A load that is cancelled, or whose requests cannot be read further, has a record of every one until then.
        """
        begin_s = time.perf_counter()
        async with _together() as group:
            for due_s, request in requests:
                await _until(begin_s + due_s)
                group.create_task(self._go(request, begin_s + due_s))
                # It has begun before anything can end it, so that it has a record.
                await asyncio.sleep(0)

    async def closed(self, requests: Iterable[Request], concurrency: int) -> None:
        """Keep so many requests at work until there are no more; the iterable may end the load at any time."""
        left = iter(requests)
        async with _together() as group:
            for _ in range(concurrency):
                group.create_task(self._in_turn(left))

    async def _in_turn(self, left: Iterator[Request]) -> None:
        for request in left:
            if (await self._go(request, time.perf_counter())).status is None:
                await asyncio.sleep(UNANSWERED_PAUSE_S)

    async def _go(self, request: Request, due_s: float) -> RequestSample:
        """Send a request, and the further turns of its conversation; return the record of the last that was sent.

        After a turn that failed the others are recorded only.
        """
        sample = await self._send(request, due_s)
        while request.next_turn and not sample.problem:
            due_s = self._origin_s + sample.end_s + request.pause_s
            request = request.next_turn(sample)
            await _until(due_s)
            sample = await self._send(request, due_s)
        if sample.problem:
            self._leave_out(request, sample)
        return sample

    def _leave_out(self, request: Request, failed: RequestSample) -> None:
        """Record the turns after one that failed."""
        while request.next_turn:
            request = request.next_turn(failed)
            answer = Completion(self._form)
            answer.problem = "an earlier turn of its conversation failed"
            self._record(request, answer, time.perf_counter())

    async def _send(self, request: Request, due_s: float) -> RequestSample:
        """Send a request, and return its record."""
        answer = Completion(self._form)
        self.at_work.add(answer)
        try:
            await self._client.post(request.message, answer)
            answer.finish(time.perf_counter())
        except TransferError as error:
            answer.problem = answer.problem or str(error)
        except asyncio.CancelledError:
            answer.problem = ENDED_AT_WORK
            raise
        finally:
            self.at_work.discard(answer)
            sample = self._record(request, answer, due_s)
        return sample

    def _record(self, request: Request, answer: Completion, due_s: float) -> RequestSample:
        asked, times_s = (request.prompt_tokens, request.output_tokens), (due_s, time.perf_counter())
        answer.problem = self._client.without_secrets(answer.problem)
        sample = answer.sample(request.index, asked, times_s, self._origin_s)
        sample.warmup, sample.turn, sample.at_s = request.is_warmup, request.turn, time.time()
        sample.text, sample.finish_reason = map(self._client.without_secrets, (sample.text, sample.finish_reason))
        self._done(sample)
        return sample


def run(load: Coroutine[Any, Any, T]) -> T:
    """Run a load on uvloop, with as many connections as this machine lets a process have.

    Python's garbage collector leaves alone what was there before, from then on: going through all that a process has
    imported stops it for longer than a token takes.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.collect()
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load)


@asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """Give a group of tasks; the first error ends the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _until(due_s: float) -> None:
    """Return at a time of time.perf_counter, never earlier.

    uvloop's timers count in whole milliseconds: the last of them is spent in turns of the loop, which goes on with
    answers meanwhile.
    """
    while (left_s := due_s - time.perf_counter()) > 0:
        await asyncio.sleep(max(0.0, left_s - 0.001))
