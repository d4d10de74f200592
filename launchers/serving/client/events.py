"""Server-sent events (WHATWG HTML, 9.2): bytes in any pieces become the data of whole events."""

from __future__ import annotations

# No event of a server that streams tokens is as long; a stream without line ends shall not fill the memory.
LONGEST_BYTES = 16 << 20


class EventReader:
    """Reads one stream; comments, which proxies send to keep a connection open, and other fields give nothing.

    Bytes are decoded by whoever takes whole events, so that a character may be split anywhere.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete; raises ValueError where a line never ends."""
        if not self._rest and not self._data and _is_one_event(received):
            return [received[6:-2]]
        received = self._rest + received
        lines = (received if b"\r" not in received else _plain(received)).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LONGEST_BYTES:
            raise ValueError(f"a line of the stream is longer than {LONGEST_BYTES} bytes")
        return self._events(lines)

    def finish(self) -> list[bytes]:
        """Return the last event of a stream that ended without the empty line, as some servers do after [DONE]."""
        lines, self._rest = [self._rest.removesuffix(b"\r"), b""], b""
        return self._events(lines)

    def _events(self, lines: list[bytes]) -> list[bytes]:
        found = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data.clear()
        return found


def _is_one_event(received: bytes) -> bool:
    """Say whether this is one event in one line, which is what most servers write at a time."""
    return (
        received.startswith(b"data: ")
        and received.endswith(b"\n\n")
        and received.count(b"\n") == 2
        and b"\r" not in received
    )


def _plain(received: bytes) -> bytes:
    """Return the bytes with one kind of line end; a last one that may be half of a pair stays as it is."""
    half = b"\r" if received.endswith(b"\r") else b""
    return received.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n") + half
