"""A server that answers at once: what a client measures against it is the client's own cost.

It takes /v1/completions with token ids or words, and streams as many events as tokens are asked for, a token each, with
ids and usage. With a pause between events it is a server without scatter, on which clients can be compared.
`python -m llmexp.launchers.serving.client.instant_server` listens on 127.0.0.1 and prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import uvloop
from httptools import HttpParserError, HttpRequestParser

from llmexp.serving.plan.server_plan import RequestForm

FORM = RequestForm.completions(token_ids=True, model="instant", ignore_eos=True)
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"


class InstantServer(asyncio.Protocol):
    """One connection; `apart` makes each event a write of its own, as a server's that has one token at a time.

    With `pause_s` each comes so long after the one before, by a timetable that begins with the request.
    """

    def __init__(self, apart: bool, pause_s: float = 0.0) -> None:
        self._apart, self._pause_s = apart or pause_s > 0, pause_s
        self._begin_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = HttpRequestParser(self)
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's call."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Asyncio's call."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Asyncio's call."""
        try:
            self._parser.feed_data(data)
        except HttpParserError:
            if self._transport:
                self._transport.close()

    def on_message_begin(self) -> None:
        """The parser's call."""
        self._body.clear()

    def on_body(self, piece: bytes) -> None:
        """The parser's call."""
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """The parser's call."""
        pieces = answer_to(b"".join(self._body))
        self._begin_s = asyncio.get_running_loop().time()
        self._write(pieces if self._apart else (b"".join(pieces),), 0)

    def _write(self, pieces: tuple[bytes, ...], place: int) -> None:
        if self._transport is None:
            return
        self._transport.write(pieces[place])
        if place + 1 == len(pieces):
            return
        loop = asyncio.get_running_loop()
        # The end comes with the last token.
        if self._pause_s and place + 2 < len(pieces):
            loop.call_at(self._begin_s + (place + 1) * self._pause_s, self._write, pieces, place + 1)
        else:
            loop.call_soon(self._write, pieces, place + 1)


def answer_to(body: bytes) -> tuple[bytes, ...]:
    """Return the writes of an answer: its head with the first event, one event each, and the end."""
    try:
        asked = json.loads(body)
        prompt, tokens = asked["prompt"], asked["max_tokens"]
        if not (isinstance(prompt, list | str) and isinstance(tokens, int) and tokens > 0):
            raise ValueError("a prompt of token ids or words and max_tokens above 0 are needed")
    except (ValueError, TypeError, KeyError) as error:
        return (_refusal(f"{type(error).__name__}: {error}"),)
    return _stream(len(prompt.split() if isinstance(prompt, str) else prompt), tokens)


@lru_cache(maxsize=64)
def _stream(prompt_tokens: int, tokens: int) -> tuple[bytes, ...]:
    events = [_event(choices=[_choice(place, place == tokens - 1)]) for place in range(tokens)]
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}
    end = _event(choices=[], usage=usage) + _chunk(b"data: [DONE]\n\n") + LAST
    return (HEAD + events[0], *events[1:], end)


def _choice(place: int, is_last: bool) -> dict[str, Any]:
    finish = "length" if is_last else None
    return {"index": 0, "text": f" word{place}", "token_ids": [place], "logprobs": None, "finish_reason": finish}


def _event(**said: Any) -> bytes:
    named = {"id": "cmpl-0123456789abcdef", "object": "text_completion", "created": 1_700_000_000, "model": "instant"}
    return _chunk(b"data: " + json.dumps(named | said).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _refusal(why: str) -> bytes:
    body = json.dumps({"error": {"message": why, "code": 400}}).encode()
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def serve(tell: Callable[[int], None], apart: bool = False, pause_s: float = 0.0) -> None:
    """Listen on 127.0.0.1 until it is cancelled, and tell the port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: InstantServer(apart, pause_s), "127.0.0.1", 0, backlog=4096)
    async with server:
        tell(server.sockets[0].getsockname()[1])
        await server.serve_forever()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m llmexp.launchers.serving.client.instant_server")
    parser.add_argument("--apart", action="store_true", help="each event is a write of its own, not the whole answer")
    parser.add_argument("--pause-s", type=float, default=0.0, help="between events")
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(lambda port: print(port, flush=True), given.apart, given.pause_s))


if __name__ == "__main__":
    main()
