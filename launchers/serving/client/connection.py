"""One connection to a server: a request at a time, and the bytes of its answer with the time at which they came."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser


class TransferError(Exception):
    """There is no whole answer; the message says why."""


class Answer(Protocol):
    """What takes in an answer; times are those of time.perf_counter."""

    def sent(self, at_s: float) -> None:
        """Take the time at which the request was written."""

    def arrived(self, at_s: float) -> None:
        """Take the time at which bytes came, whichever they are."""

    def headed(self, status: int) -> None:
        """Take the status, once the answer's head is complete."""

    def body(self, data: bytes, at_s: float) -> None:
        """Take all bytes of the body that came at one time."""


@dataclass(frozen=True)
class Patience:
    """For how long a client waits: for a connection, for the next byte, and for the whole answer."""

    connect_s: float = 30.0
    silent_s: float = 300.0
    answer_s: float = 3600.0
    answer_bytes: int = 2**26
    """The most that an answer may have; the longest of a real server have some MB."""


class Connection(asyncio.Protocol):
    """A connection that is kept alive; `exchange` sends a request, and returns once its answer is complete."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.is_reusable = True
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._parser = HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._status = self._received = 0
        self._is_complete = self._has_length = False
        self._last_s = 0.0
        self.sent_s = self.heard_s = 0.0
        """When the last request was written, and when the server last sent anything; 0 before."""

    @property
    def peer(self) -> str | None:
        """The address that the server's name led to."""
        found = self._transport.get_extra_info("peername") if self._transport else None
        return str(found[0]) if found else None

    @property
    def last_byte_s(self) -> float:
        """The time of the last byte in either direction, or of the connection's begin."""
        return self._last_s

    async def exchange(self, message: bytes, answer: Answer) -> None:
        """Send a request and take in its answer; raises TransferError where that breaks off or takes too long."""
        if self._transport is None or self._transport.is_closing():
            raise TransferError("the server closed the connection")
        loop = asyncio.get_running_loop()
        self._answer, self._ended = answer, loop.create_future()
        self._status, self._is_complete, self._has_length, self._received = 0, False, False, 0
        self.is_reusable = False
        self._transport.write(message)
        self.sent_s = self._last_s = time.perf_counter()
        answer.sent(self.sent_s)
        self._watch()
        try:
            await self._ended
        finally:
            self._timer.cancel()
            self._answer = None

    def give_up(self, problem: str) -> None:
        """End the exchange that is under way, for this reason."""
        self._fail(problem)

    def close(self) -> None:
        """Close at once; the server sees a reset or an end."""
        self.is_reusable = False
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's call."""
        self._transport = cast(asyncio.Transport, transport)
        self._last_s = time.perf_counter()

    def data_received(self, data: bytes) -> None:
        """Asyncio's call: all bytes that it gives at once have one time."""
        at_s = time.perf_counter()
        self._last_s = self.heard_s = at_s
        answer = self._answer
        if answer is None:
            self.close()
            return
        answer.arrived(at_s)
        self._received += len(data)
        if self._received > self.patience.answer_bytes:
            self._fail(f"the answer is larger than {self.patience.answer_bytes >> 20} MiB")
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail("the server changed to another protocol")
        except HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error}")
        if self._pieces:
            answer.body(b"".join(self._pieces), at_s)
            self._pieces.clear()
        if self._is_complete:
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        """Asyncio's call; an answer without a length ends with its connection."""
        self.is_reusable = False
        if error is None and self._status and not self._has_length:
            self._end()
        how = "closed the connection" if error is None else f"dropped the connection ({error})"
        self._fail(f"the server {how} {'in the middle of' if self._status else 'before'} its answer")

    def on_message_begin(self) -> None:
        """The parser's call."""
        if self._is_complete:
            self._fail("the server sent a second answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's call."""
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        """The parser's call; an answer below 200 only announces the one that counts."""
        status = self._parser.get_status_code()
        if status >= 200 and self._answer:
            self._status = status
            self._answer.headed(status)

    def on_body(self, piece: bytes) -> None:
        """The parser's call."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """The parser's call; only now it still knows whether the connection goes on."""
        self._is_complete = bool(self._status)
        self.is_reusable = self._is_complete and self._parser.should_keep_alive()

    def _watch(self) -> None:
        """End the exchange if its time is over, else look again when it may be."""
        now_s, patience = time.perf_counter(), self.patience
        left_s = min(self._last_s + patience.silent_s, self.sent_s + patience.answer_s) - now_s
        if left_s > 0:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._watch)
        elif now_s - self.sent_s >= patience.answer_s:
            self._fail(f"the answer was not complete after {patience.answer_s:g} s")
        else:
            self._fail(f"the server sent nothing for {patience.silent_s:g} s")

    def _end(self) -> None:
        if self._answer and not self._ended.done():
            self._ended.set_result(None)

    def _fail(self, problem: str) -> None:
        self.is_reusable = False
        if self._answer and not self._ended.done():
            self._ended.set_exception(TransferError(problem))
