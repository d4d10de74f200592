"""`python -m benchmarks.serving_client NAME PORT STREAMS CORE` asks the instant server for streams, by one client.

It prints the wall and CPU seconds of so many streams after as many that warm up a tenth. Each client sends the same
bytes, keeps as many streams at work, decodes every event, keeps the time of every chunk and the text, and checks that
each stream is whole. RIVALS are bare loops over aiohttp, one of them on llmexp's event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.completions import body_of
from llmexp.launchers.serving.client.instant_server import FORM
from llmexp.launchers.serving.load import Load, Request, run
from llmexp.serving.record.requests import RequestSample

AT_WORK, PROMPT, TOKENS = 64, 512, 32
OURS, AIOHTTP, ON_UVLOOP = "llmexp", "aiohttp", "aiohttp on uvloop"
BODY = body_of(FORM, range(PROMPT), TOKENS)


@dataclass
class Stream:
    """What the bare client keeps of a stream; times are those of time.perf_counter."""

    sent_s: float
    chunk_s: list[float] = field(default_factory=list)
    text: str = ""
    counts: tuple[int, int] | None = None
    end_s: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Say whether all of it came."""
        return self.counts == (PROMPT, TOKENS) and len(self.chunk_s) == TOKENS


async def ours(port: int, streams: int) -> int:
    """Ask by llmexp's client; return how many streams were whole."""
    found: list[RequestSample] = []
    async with Client(Address("127.0.0.1", port)) as client:
        message = client.message(FORM.path, BODY)
        requests = (Request(index, message, PROMPT, TOKENS) for index in range(streams))
        await Load(client, FORM, found.append).closed(requests, AT_WORK)
    return sum(not one.problem and not one.differences and len(one.chunk_us) == TOKENS for one in found)


async def bare(port: int, streams: int) -> int:
    """Ask by aiohttp; return how many streams were whole."""
    found: list[Stream] = []
    left = iter(range(streams))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_WORK)) as session:

        async def in_turn() -> None:
            for _ in left:
                found.append(await _stream(session, f"http://127.0.0.1:{port}{FORM.path}"))

        await asyncio.gather(*(in_turn() for _ in range(AT_WORK)))
    return sum(one.is_whole for one in found)


async def _stream(session: aiohttp.ClientSession, url: str) -> Stream:
    stream = Stream(time.perf_counter())
    async with session.post(url, data=BODY, headers={"Content-Type": "application/json"}) as response:
        async for line in response.content:
            if not line.startswith(b"data: ") or line == b"data: [DONE]\n":
                continue
            event = json.loads(line[6:])
            if event["choices"]:
                stream.chunk_s.append(time.perf_counter())
                stream.text += event["choices"][0]["text"]
            if usage := event.get("usage"):
                stream.counts = usage["prompt_tokens"], usage["completion_tokens"]
    stream.end_s = time.perf_counter()
    return stream


CLIENTS: dict[str, Callable[[int, int], int]] = {
    OURS: lambda port, streams: run(ours(port, streams)),
    AIOHTTP: lambda port, streams: asyncio.run(bare(port, streams)),
    ON_UVLOOP: lambda port, streams: run(bare(port, streams)),
}


def measure(name: str, port: int, streams: int) -> dict[str, Any]:
    """Return the seconds of so many streams; raises RuntimeError where one was not whole."""
    ask = CLIENTS[name]
    ask(port, streams // 10)
    cpu_s, begin_s = time.process_time(), time.perf_counter()
    whole = ask(port, streams)
    found = {"wall_s": time.perf_counter() - begin_s, "cpu_s": time.process_time() - cpu_s}
    if whole != streams:
        raise RuntimeError(f"{name}: {streams - whole} of {streams} streams were not whole")
    return found


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[4])})
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
