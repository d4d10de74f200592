"""Real servers on 127.0.0.1 that do what a test says, in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.completions import Completion
from llmexp.serving.plan.server_plan import RequestForm

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
FORM = RequestForm.completions(token_ids=True, model="tiny", ignore_eos=True)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(**said: Any) -> bytes:
    return b"data: " + json.dumps(said, ensure_ascii=False).encode() + b"\n\n"


def token(text: str, finish: str | None = None, **more: Any) -> bytes:
    return event(choices=[{"text": text, "finish_reason": finish, **more}])


def usage(prompt: int, output: int) -> bytes:
    return event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": output})


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def chunked(*pieces: bytes) -> bytes:
    return CHUNKED + b"".join(chunk(piece) for piece in pieces) + b"0\r\n\r\n"


def sized(status: str, body: bytes, *headers: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}".encode(), f"Content-Length: {len(body)}".encode(), *headers, b"", b""]
    return b"\r\n".join(lines) + body


WHOLE = chunked(token("one"), token(" two", "length"), usage(3, 2), DONE)


async def read_request(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The JSON of the next request; None where the client has closed."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    length = re.search(rb"Content-Length: (\d+)", head)
    assert length
    found: dict[str, Any] = json.loads(await reader.readexactly(int(length[1])))
    return found


def answering(answer: bytes) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader) is not None:
            writer.write(answer)

    return handle


@contextlib.asynccontextmanager
async def serving(handle: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    """A server whose connections are handled until the test ends, then broken off."""
    handlers: set[asyncio.Task[None]] = set()

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        handlers.add(task)
        try:
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await handle(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handled, "127.0.0.1", 0, ssl=tls)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1], tls is not None)
    finally:
        server.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers)
        await server.wait_closed()


class Watched(Completion):
    """An answer that says when bytes have come, so that a server can wait for it between two pieces."""

    def __init__(self) -> None:
        super().__init__(FORM)
        self.came = asyncio.Event()

    def arrived(self, at_s: float) -> None:
        super().arrived(at_s)
        self.came.set()


def in_pieces(pieces: list[bytes], came: Callable[[], asyncio.Event]) -> Handler:
    """A server that sends each piece when the client has the one before."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader) is not None:
            for piece in pieces:
                came().clear()
                writer.write(piece)
                await came().wait()

    return handle
