"""Sends a request to the server that reads its prompt, then to the one that generates, whose answer it passes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TypeVar

from httptools import HttpParserError, HttpRequestParser, HttpResponseParser

from llmexp.launchers.serving.disaggregated.connectors import of_decode, of_prefill
from llmexp.record.port import HOST

PIECE_BYTES = 1 << 16
P = TypeVar("P", HttpRequestParser, HttpResponseParser)
OK, UNAVAILABLE, BAD_GATEWAY = 200, 503, 502


class RouterMessage:
    """The parts of an HTTP message, which the parser's calls fill in."""

    def __init__(self) -> None:
        self.url, self.content, self.is_complete = b"", b"", False
        self.authorization = b""

    def on_url(self, url: bytes) -> None:
        """The parser's call."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's call; of all headers, the servers need that which names the key."""
        if name.lower() == b"authorization":
            self.authorization = value

    def on_body(self, piece: bytes) -> None:
        """The parser's call."""
        self.content += piece

    def on_message_complete(self) -> None:
        """The parser's call."""
        self.is_complete = True


class Router:
    """Two servers at ports of this machine; a connection has one request, whose end closes it."""

    def __init__(self, connector: str, prefill: int, decode: int) -> None:
        self._connector, self._prefill, self._decode = connector, prefill, decode

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the request of a connection; a server that cannot be reached is 502."""
        try:
            await self._route(reader, writer)
        except (OSError, HttpParserError, asyncio.IncompleteReadError) as error:
            with contextlib.suppress(OSError):
                writer.write(_answer(BAD_GATEWAY, f"{type(error).__name__}: {error}".encode()))
        finally:
            with contextlib.suppress(OSError):
                writer.close()
                await writer.wait_closed()

    async def _route(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = RouterMessage()
        method = (await _parse(reader, HttpRequestParser(asked), asked)).get_method()
        path = asked.url.decode()
        if method == b"POST":
            await self._complete(path, asked, writer)
        else:
            writer.write(await self._of_both(path, asked.authorization))
        await writer.drain()

    async def _of_both(self, path: str, key: bytes) -> bytes:
        """Return what both servers say to a GET, one after the other; 503 as long as not both answer 200."""
        try:
            found = [await _ask(port, "GET", path, key) for port in (self._prefill, self._decode)]
        except OSError as error:
            return _answer(UNAVAILABLE, str(error).encode())
        status = max(status for status, _ in found)
        return _answer(status if status == OK else UNAVAILABLE, b"".join(content for _, content in found))

    async def _complete(self, path: str, message: RouterMessage, writer: asyncio.StreamWriter) -> None:
        """Have the prompt read, then pass on the answer of the other server; what the first refuses is passed on."""
        key = message.authorization
        try:
            asked = json.loads(message.content)
        except ValueError:
            await _pass_on(self._decode, _request("POST", path, key, message.content), writer)
            return
        first = json.dumps(of_prefill(self._connector, asked)).encode()
        status, content = await _ask(self._prefill, "POST", path, key, first)
        if status != OK:
            writer.write(_answer(status, content))
            return
        then = json.dumps(of_decode(asked, json.loads(content))).encode()
        await _pass_on(self._decode, _request("POST", path, key, then), writer)


async def _ask(port: int, method: str, path: str, key: bytes, body: bytes = b"") -> tuple[int, bytes]:
    """Return the status and the content of a whole answer."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(_request(method, path, key, body))
        answer = RouterMessage()
        return (await _parse(reader, HttpResponseParser(answer), answer)).get_status_code(), answer.content
    finally:
        writer.close()


async def _pass_on(port: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    """Write the bytes of a request's answer as they come, to its end; a client that hangs up ends the request."""
    reader, upstream = await asyncio.open_connection(HOST, port)
    try:
        upstream.write(request)
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    finally:
        upstream.close()


async def _parse(reader: asyncio.StreamReader, parser: P, into: RouterMessage) -> P:
    """Read a message wholly; raises IncompleteReadError where it is cut off."""
    while not into.is_complete:
        piece = await reader.read(PIECE_BYTES)
        if not piece:
            raise asyncio.IncompleteReadError(into.content, None)
        parser.feed_data(piece)
    return parser


def _request(method: str, path: str, key: bytes, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    named = b"Authorization: " + key + b"\r\n" if key else b""
    return head.encode() + named + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def _answer(status: int, content: bytes) -> bytes:
    return f"HTTP/1.1 {status} -\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
