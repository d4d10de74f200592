from __future__ import annotations

import pytest

from llmexp.launchers.serving.client import events
from llmexp.launchers.serving.client.events import EventReader

STREAM = (
    ': ping\n\nevent: token\ndata: {"text": "größe 東"}\nid: 7\n\n: ping\n\ndata:two\ndata: lines\n\ndata: [DONE]\n\n'
)
DATA = ['{"text": "größe 東"}', "two\nlines", "[DONE]"]


def read(*pieces: bytes) -> list[str]:
    reader = EventReader()
    found = [data for piece in pieces for data in reader.feed(piece)]
    return [data.decode() for data in found + reader.finish()]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_split_gives_the_same_events(end: str) -> None:
    stream = STREAM.replace("\n", end).encode()
    assert [at for at in range(len(stream) + 1) if read(stream[:at], stream[at:]) != DATA] == []
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == DATA


def test_an_event_is_given_as_soon_as_it_is_whole() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\n") == []
    assert reader.feed(b"\ndata: b") == [b"a"]
    assert reader.feed(b"\n\n") == [b"b"]


def test_the_last_event_needs_no_empty_line() -> None:
    assert read(b"data: a\n\ndata: [DONE]") == ["a", "[DONE]"]
    assert read(b"data: a\n\ndata: [DONE]\r\n") == ["a", "[DONE]"]


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LONGEST_BYTES", 1000)
    reader = EventReader()
    for _ in range(100):
        reader.feed(b"data: aaaa")
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        reader.feed(b"a")
