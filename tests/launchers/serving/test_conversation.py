"""Conversations: each turn has all that was said before, and is due when the last answer ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scripted_server import DONE, FORM, Handler, chunked, read_request, serving, sized, token, usage
from served_requests import serving_plan

from llmexp.errors import ServerError
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.load import Load, Request, run
from llmexp.launchers.serving.load_requests import requests_of
from llmexp.launchers.serving.session import put
from llmexp.serving.record.requests import RequestSample

TURNS = 3
WORDS = ("serve.prompt.tokens=4", "serve.output.tokens=2", f"serve.turns={TURNS}", "serve.requests=2")


class Talking:
    """Answers with two tokens of its own in each turn, and keeps the prompts."""

    def __init__(self, tells_ids: bool = True, fails_at: int | None = None) -> None:
        self.prompts: list[list[int]] = []
        self._tells_ids, self._fails_at = tells_ids, fails_at

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (asked := await read_request(reader)) is not None:
            self.prompts.append(asked["prompt"])
            number = len(self.prompts)
            if number == self._fails_at:
                writer.write(sized("503 Busy", b"no"))
                continue
            told: list[dict[str, Any]] = [{"token_ids": [each]} if self._tells_ids else {} for each in (number, 99)]
            first, last = token("a", **told[0]), token("b", "length", **told[1])
            writer.write(chunked(first, last, usage(len(asked["prompt"]), 2), DONE))


def converse(handle: Handler, *words: str) -> list[RequestSample]:
    """The records of the measured requests of a plan's first load point, in the order in which they ended."""
    plan = serving_plan(*WORDS, *words)
    found: list[RequestSample] = []

    async def going() -> None:
        async with serving(handle) as address, Client(address) as client:
            every: list[Request] = requests_of(plan, plan.points[0], client, FORM)
            load = Load(client, FORM, found.append)
            await put(load, plan, plan.points[0], every[plan.points[0].warmup :])

    run(going())
    return found


def test_a_turn_has_what_was_said_before_and_new_tokens() -> None:
    server = Talking()
    found = converse(server, "serve.concurrency=1", "serve.rate=[]")
    assert [(sample.index % TURNS, sample.turn, sample.problem) for sample in found] == [
        (turn, turn, "") for _ in range(2) for turn in range(TURNS)
    ]
    assert [sample.asked_prompt_tokens for sample in found] == [4, 10, 16] * 2
    assert [sample.differences for sample in found] == [[]] * 6
    for begin in (0, 3):
        first, second, third = server.prompts[begin : begin + 3]
        assert second[:6] == [*first, begin + 1, 99]
        assert third[:12] == [*second, begin + 2, 99]
        # What is new is drawn: turns and conversations share none of it.
        assert len({tuple(first), tuple(second[6:]), tuple(third[12:])}) == 3
    assert server.prompts[0] != server.prompts[3]


@pytest.mark.parametrize("load", ["serve.rate=max", "serve.concurrency=2"])
def test_the_next_turn_is_due_after_the_time_to_think(load: str) -> None:
    found = converse(Talking(), load, "serve.think_time_s=0.02")
    by_index = {sample.index: sample for sample in found}
    assert len(by_index) == 2 * TURNS
    for sample in found:
        if sample.turn:
            due_s = by_index[sample.index - 1].end_s + 0.02
            assert sample.scheduled_s == pytest.approx(due_s, abs=1e-6)
            assert sample.sent_s is not None
            assert sample.sent_s >= due_s - 1e-6


def test_after_a_turn_that_failed_the_others_are_recorded_and_not_sent() -> None:
    server = Talking(fails_at=2)
    found = converse(server, "serve.concurrency=1", "serve.rate=[]")
    assert len(server.prompts) == 5
    assert [sample.problem for sample in found] == [
        "",
        "HTTP status 503: no",
        "an earlier turn of its conversation failed",
        *[""] * 3,
    ]
    assert (found[2].sent_s, found[2].turn, found[2].asked_prompt_tokens) == (None, 2, 16)
    assert found[2].t_end_s > found[2].t_start_s


def test_a_server_that_tells_no_tokens_cannot_hold_a_conversation() -> None:
    with pytest.raises(ServerError, match=r"serve\.turns=3: the server's answers have no token ids") as refused:
        converse(Talking(tells_ids=False), "serve.rate=max")
    assert "\n" not in str(refused.value)
