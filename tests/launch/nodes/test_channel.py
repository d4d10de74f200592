from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from llmexp.launch.nodes.channel import Channel
from llmexp.launch.nodes.messages import Ended, Here, Stacks, Stop
from llmexp.launch.ranks import LOOPBACK
from llmexp.record.result import RunStatus

SECRET = b"a sweep's"
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def connected() -> Iterator[Callable[[], Pair]]:
    opened: list[socket.socket] = []

    def connect() -> Pair:
        with socket.create_server((LOOPBACK, 0)) as server:
            one = socket.create_connection(server.getsockname())
            other, _ = server.accept()
        opened.extend((one, other))
        return one, other

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def tapped(connected: Callable[[], Pair]) -> tuple[Channel, Pair, Channel]:
    """Two ends whose words go through somebody between them."""
    (one, near), (far, other) = connected(), connected()
    ends = Channel(one, SECRET), Channel(other, SECRET)
    for source, target in ((near, far), (far, near)):
        target.sendall(source.recv(100))
    return ends[0], (near, far), ends[1]


def test_messages_arrive_as_they_were_said_in_both_directions(connected: Callable[[], Pair]) -> None:
    one, other = (Channel(end, SECRET) for end in connected())
    said = [
        Here(node=1, host="gpu02", cpu={"logical_cores": 2}),
        Ended(code=1, reason="no", status=RunStatus.OOM, killed_for_memory=True),
    ]
    for message in said:
        one.say(message)
    assert [other.wait(5.0), other.wait(5.0)] == said
    other.say(Stop())
    assert one.wait(5.0) == Stop()
    other.close()
    assert one.wait(5.0) is None
    assert not one.alive


def test_who_does_not_know_the_secret_is_not_heard(connected: Callable[[], Pair]) -> None:
    one, stranger = connected()
    channel, posing = Channel(one, SECRET), Channel(stranger, b"a guess")
    posing.say(Stop())
    assert channel.wait(5.0) is None
    assert not channel.alive


@pytest.mark.parametrize(
    "changed", [lambda heard: heard, lambda heard: heard.replace(b"stacks", b"stop")], ids=["repeated", "changed"]
)
def test_a_message_that_was_heard_on_the_way_helps_nobody(
    tapped: tuple[Channel, Pair, Channel], changed: Callable[[bytes], bytes]
) -> None:
    one, (near, far), other = tapped
    one.say(Stacks())
    heard = near.recv(1000)
    far.sendall(heard)
    assert other.wait(5.0) == Stacks()
    far.sendall(changed(heard))
    assert other.wait(5.0) is None
    assert not other.alive


def test_a_message_that_is_sent_back_is_none(tapped: tuple[Channel, Pair, Channel]) -> None:
    one, (near, _), _ = tapped
    one.say(Stacks())
    near.sendall(near.recv(1000))
    assert one.wait(5.0) is None
    assert not one.alive


@pytest.mark.parametrize("words", [b"[1]\n", b"0" * 32 + b"\n[1]\n", b"0" * 2**21])
def test_what_is_no_message_ends_the_line(connected: Callable[[], Pair], words: bytes) -> None:
    one, stranger = connected()
    channel = Channel(one, SECRET)
    stranger.settimeout(5.0)
    with suppress(TimeoutError):
        stranger.sendall(words)
    assert channel.wait(5.0) is None
    assert not channel.alive


def test_a_number_that_is_sent_back_is_no_number(connected: Callable[[], Pair]) -> None:
    one, stranger = connected()
    channel = Channel(one, SECRET)
    stranger.sendall(stranger.recv(100))
    assert channel.wait(5.0) is None
    assert not channel.alive
