"""Parses the events of a Chrome trace part by part, so that memory does not grow with the text."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from llmexp.errors import TraceError

PART_BYTES = 2**19
# An event has some hundred bytes, and a few kilobytes where it lists the shapes of many tensors.
LONGEST_EVENT_BYTES = 2**22
LONGEST_HEAD_BYTES, KEPT_HEAD_BYTES = 2**28, 2**16
# Places that look like the border of two events may lie inside one or inside a text: so many are tried.
TRIED_BORDERS = 16
# So many pieces between places that look like borders may be one event.
JOINED_PIECES = 8
_START, _BARE_LIST = re.compile(rb'"traceEvents"\s*:\s*\['), re.compile(rb"\s*\[")
_DEVICE_NAME = re.compile(rb'"deviceProperties"\s*:\s*\[\s*\{[^{}]{0,1000}?"name"\s*:\s*"([^"\\]{1,100})"')
_BORDER = re.compile(rb"\}\s*,\s*(?=\{)")
(_CLOSED,) = b"]"
# Profilers write these without quotes, which is no JSON: "blocks per SM": inf.
_NO_NUMBER = re.compile(rb"(:\s*)-?(?:inf|nan|Infinity|NaN)\b")


# What a text raises that is no list of events. Those of msgspec 0.19 are no ValueErrors.
NO_EVENTS = (ValueError, msgspec.DecodeError, RecursionError)
_NO_LIST, _NULL = msgspec.Raw(b"[]"), msgspec.Raw(b"null")


class Arguments(msgspec.Struct, gc=False, frozen=True):
    """What an event says of itself, as far as it is read; other profilers may write other types."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    bytes: Any = None
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_NO_LIST)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NO_LIST)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NO_LIST)
    collective: Any = msgspec.field(name="Collective name", default=None)
    dtype: Any = None
    sent: Any = msgspec.field(name="In msg nelems", default=None)
    received: Any = msgspec.field(name="Out msg nelems", default=None)


NO_ARGUMENTS = Arguments()


class Event(msgspec.Struct, gc=False):
    """One event; ts and dur are in microseconds, the former as the text that the file has."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _NULL
    dur: Any = None
    id: Any = None
    args: Arguments = NO_ARGUMENTS


class TraceFile:
    """The events of a file as lists; afterwards `truncated` says whether the file ended within its events.

    `device_name` is that of the first GPU by its driver, or empty. `unreadable` is the number of places between events
    that are no events, because the file is damaged there.
    """

    def __init__(self, path: Path) -> None:
        self._path, self.truncated, self.device_name, self.unreadable = path, False, "", 0
        self._decode = msgspec.json.Decoder(list[Event]).decode

    def __iter__(self) -> Iterator[list[Event]]:
        """Yield the events, some thousands at a time; raises TraceError where the file is no trace or is damaged."""
        parts = self._parts()
        rest = self._after_head(parts)
        for part in parts:
            listed = bytearray().join((b"[", rest, part))
            events, taken = self._until_last_border(listed)
            rest = bytes(memoryview(listed)[1 + taken :])
            if not taken:
                events, taken = self._until_end(rest)
                if taken:
                    yield events
                    return
                if len(rest) > LONGEST_EVENT_BYTES:
                    events, taken = self._readable(rest)
                    rest = rest[taken:]
            yield events
        yield from self._last(rest)

    def _last(self, text: bytes) -> Iterator[list[Event]]:
        """Yield the events of what is left at the file's end."""
        events, taken = self._until_end(text)
        if not taken:
            events, taken = self._readable(text) if _BORDER.search(text) else ([], 0)
            yield events
            events, end = self._until_end(text[taken:])
            self.truncated = not end
            if self.truncated:
                with suppress(*NO_EVENTS):
                    events = self._events(text[taken:].rstrip(b", \r\n\t"))
        yield events

    def _parts(self) -> Iterator[bytes]:
        if self._path.exists() and not self._path.is_file():
            raise TraceError(f"{self._path} is not a file")  # a named pipe would be waited for
        try:
            with self._path.open("rb") as file:
                packed = file.read(2) == b"\x1f\x8b"
                file.seek(0)
                yield from self._unpacked(file) if packed else iter(lambda: file.read(PART_BYTES), b"")
        except OSError as error:
            raise TraceError(f"{self._path} cannot be read: {error.strerror}") from error

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the text of a gzip file of one or more members, as far as it goes."""
        inflate = zlib.decompressobj(wbits=31)
        packed = b""
        while packed := packed or file.read(PART_BYTES // 4):
            try:
                part = inflate.decompress(packed, PART_BYTES)
            except zlib.error as error:
                raise TraceError(f"{self._path} is a damaged gzip file: {error}") from error
            packed = inflate.unconsumed_tail
            if inflate.eof and inflate.unused_data:
                packed, inflate = inflate.unused_data, zlib.decompressobj(wbits=31)
            if part:
                yield part

    def _after_head(self, parts: Iterator[bytes]) -> bytes:
        """Return what of the part follows the begin of the events; of what is before them one part is kept at most."""
        head, passed = b"", 0
        for part in parts:
            head = head[-KEPT_HEAD_BYTES:] + part
            if start := _START.search(head) or (None if passed else _BARE_LIST.match(head)):
                self.device_name = _name_of_device(head[: start.start()])
                return head[start.end() :]
            passed += len(part)
            if passed > LONGEST_HEAD_BYTES:
                break
        raise TraceError(f"{self._path} is not a trace: it has no list named traceEvents")

    def _until_last_border(self, listed: bytearray) -> tuple[list[Event], int]:
        """Return the events up to the last border between two, and where the next begins; no events and 0 if none is.

        `listed` is a text after a bracket, in which the list is closed at the border: so nothing is copied. A border is
        looked for in the last bytes only, because that takes less time.
        """
        windows = (list(_BORDER.finditer(listed, max(1, len(listed) - searched))) for searched in (2**12, 2**16))
        borders = [(border.start() + 1, border.end()) for border in next(filter(None, windows), [])]
        for end, begin in reversed(borders[-TRIED_BORDERS:]):
            after, listed[end] = listed[end], _CLOSED
            with suppress(*NO_EVENTS):
                return self._decode(memoryview(listed)[: end + 1]), begin - 1
            listed[end] = after
            with suppress(*NO_EVENTS):
                return self._mended(bytes(memoryview(listed)[1:end])), begin - 1
        return [], 0

    def _readable(self, text: bytes) -> tuple[list[Event], int]:
        """Return the events of a damaged text that can be read, and where what follows its last border begins.

        Raises TraceError where there is no border.
        """
        borders = [(border.start() + 1, border.end()) for border in _BORDER.finditer(text)]
        if not borders:
            raise TraceError(f"{self._path} is damaged: an event in it has no end")
        events, place, begin = [], 0, 0
        while place < len(borders):
            found, joined = self._first_event(text, begin, borders[place : place + JOINED_PIECES])
            events += found
            self.unreadable += not found
            place += joined
            begin = borders[place - 1][1]
        return events, begin

    def _first_event(self, text: bytes, begin: int, borders: list[tuple[int, int]]) -> tuple[list[Event], int]:
        """Return the event that ends at one of the borders, with the number of pieces that it takes."""
        for joined, (end, _) in enumerate(borders, 1):
            with suppress(*NO_EVENTS):
                return self._events(text[begin:end]), joined
        return [], 1

    def _until_end(self, text: bytes) -> tuple[list[Event], int]:
        """Return the events up to the end of their list, and where it is; no events and 0 where the text has no end."""
        with suppress(*NO_EVENTS):  # ISO 8859-1 keeps the places of bytes
            _, end = json.JSONDecoder().raw_decode("[" + _numbers_only(text).decode("iso-8859-1"))
            return self._events(_numbers_only(text)[: end - 2]), end
        return [], 0

    def _events(self, text: bytes) -> list[Event]:
        """Return the events between two borders; raises one of NO_EVENTS where there are none."""
        try:
            return self._decode(b"[" + text + b"]")
        except (ValueError, msgspec.DecodeError):
            return self._mended(text)

    def _mended(self, text: bytes) -> list[Event]:
        """Return the events of a text that is no JSON as it is; raises one of NO_EVENTS too."""
        readable = _numbers_only(text).decode(errors="replace").encode()
        if readable == text:
            raise ValueError("no list of events")
        return self._decode(b"[" + readable + b"]")


def _numbers_only(text: bytes) -> bytes:
    return _NO_NUMBER.sub(rb"\1null", text)


def _name_of_device(head: bytes) -> str:
    found = _DEVICE_NAME.search(head)
    return found[1].decode(errors="replace") if found else ""
