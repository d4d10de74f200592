"""The instant server with a pause between events: a timetable that every client can be held against."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.completions import body_of
from llmexp.launchers.serving.client.instant_server import FORM, answer_to, serve
from llmexp.launchers.serving.load import Load, Request, run
from llmexp.serving.record.requests import RequestSample

PAUSE_S, TOKENS = 0.004, 6


def asked(pause_s: float) -> RequestSample:
    """The record of one request to a server with this pause."""
    found: list[RequestSample] = []

    async def going() -> None:
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(serve(port.set_result, pause_s=pause_s))
        async with Client(Address("127.0.0.1", await port)) as client:
            message = client.message(FORM.path, body_of(FORM, [1, 2, 3], TOKENS))
            await Load(client, FORM, found.append).closed([Request(0, message, 3, TOKENS)], 1)
        serving.cancel()

    run(going())
    (sample,) = found
    return sample


def test_events_come_no_sooner_than_the_timetable_has_them() -> None:
    sample = asked(PAUSE_S)
    assert (sample.problem, sample.differences) == ("", [])
    times_s = sample.chunk_times_s
    assert len(times_s) == TOKENS, "each event is a write of its own"
    assert all(after >= before for before, after in pairwise(times_s))
    # uvloop's timers count in whole milliseconds.
    assert times_s[-1] - times_s[0] > (TOKENS - 1) * PAUSE_S - 0.002
    assert sample.sent_s is not None
    assert sample.end_s - sample.sent_s > (TOKENS - 1) * PAUSE_S - 0.002


def test_words_count_as_tokens_of_a_prompt() -> None:
    body = {"prompt": " aaaa aaab aaac", "max_tokens": 1}
    assert b'"prompt_tokens": 3' in b"".join(answer_to(json.dumps(body).encode()))
