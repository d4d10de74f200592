"""Parses the events of a Chrome trace part by part, so that memory does not grow with the text."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from llmexp.errors import TraceError

PART_BYTES = 2**19
# An event has some hundred bytes, and a few kilobytes where it lists the shapes of many tensors.
LONGEST_EVENT_BYTES = 2**24
LONGEST_HEAD_BYTES, KEPT_HEAD_BYTES = 2**28, 2**16
# Places that look like the border of two events may lie inside one or inside a text: so many are tried.
TRIED_BORDERS = 32
_START = re.compile(rb'"traceEvents"\s*:\s*\[|\A\s*\[')
_DEVICE_NAME = re.compile(rb'"deviceProperties"\s*:\s*\[\s*\{[^{}]{0,1000}?"name"\s*:\s*"([^"\\]{1,100})"')
_BORDER = re.compile(rb"\}\s*,\s*(?=\{)")
# Profilers write these without quotes, which is no JSON: "blocks per SM": inf.
_NO_NUMBER = re.compile(rb"(:\s*)-?(?:inf|nan|Infinity|NaN)\b")


_NO_LIST = msgspec.Raw(b"[]")


class Arguments(msgspec.Struct, gc=False, frozen=True):
    """What an event says of itself, as far as it is read; other profilers may write other types."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    bytes: Any = None
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_NO_LIST)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NO_LIST)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NO_LIST)


NO_ARGUMENTS = Arguments()


class Event(msgspec.Struct, gc=False):
    """One event; ts and dur are in microseconds."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: Arguments = NO_ARGUMENTS


class TraceFile:
    """The events of a file as lists; afterwards `truncated` says whether the file ended within its events.

    `device_name` is that of the first GPU by its driver, or empty.
    """

    def __init__(self, path: Path, number: Callable[[str], Any] = float) -> None:
        self._path, self.truncated, self.device_name = path, False, ""
        hook = None if number is float else number
        self._decode = msgspec.json.Decoder(list[Event], float_hook=hook).decode

    def __iter__(self) -> Iterator[list[Event]]:
        """Yield the events, some thousands at a time; raises TraceError where the file is no trace or is damaged."""
        parts = self._parts()
        rest = self._after_head(parts)
        for part in parts:
            rest += part
            events, taken = self._until_last_border(rest, searched=2**16)
            if not taken:
                events, taken = self._until_end(rest)
                if taken:
                    yield events
                    return
                if len(rest) > LONGEST_EVENT_BYTES:
                    raise TraceError(f"{self._path} is damaged: what should be an event has no end")
            yield events
            rest = rest[taken:]
        events, taken = self._until_end(rest)
        if not taken:
            self.truncated = True
            events, taken = self._until_last_border(rest.rstrip(b", \r\n\t") + b",{", searched=len(rest))
        yield events

    def _parts(self) -> Iterator[bytes]:
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
            if start := _START.search(head) if not passed or b'"' in part else None:
                self.device_name = _name_of_device(head[: start.start()])
                return head[start.end() :]
            passed += len(part)
            if passed > LONGEST_HEAD_BYTES:
                break
        raise TraceError(f"{self._path} is no trace: it has no list named traceEvents")

    def _until_last_border(self, text: bytes, searched: int) -> tuple[list[Event], int]:
        """Return the events up to the last border between two that lies in the last bytes, and where the next begins.

        Returns no events and 0 where there is none.
        """
        borders = list(_BORDER.finditer(text, max(0, len(text) - searched)))[-TRIED_BORDERS:]
        for border in reversed(borders):
            with suppress(msgspec.DecodeError):
                return self._events(text[: border.start() + 1]), border.end()
        return [], 0

    def _until_end(self, text: bytes) -> tuple[list[Event], int]:
        """Return the events up to the end of their list, and where it is; no events and 0 where the text has no end."""
        with suppress(ValueError, RecursionError):  # ISO 8859-1 keeps the places of bytes
            _, end = json.JSONDecoder().raw_decode("[" + _numbers_only(text).decode("iso-8859-1"))
            return self._events(_numbers_only(text)[: end - 2]), end
        return [], 0

    def _events(self, text: bytes) -> list[Event]:
        try:
            return self._decode(b"[" + text + b"]")
        except msgspec.DecodeError:
            return self._decode(b"[" + _numbers_only(text) + b"]")


def _numbers_only(text: bytes) -> bytes:
    return _NO_NUMBER.sub(rb"\1null", text)


def _name_of_device(head: bytes) -> str:
    found = _DEVICE_NAME.search(head)
    return found[1].decode(errors="replace") if found else ""
