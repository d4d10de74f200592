"""The machines of a run as the first one sees them: it tells the others when to start and stop, and learns at once when one is lost.

What is said is one JSON object a line, over TCP; commands are not: each machine reads the plan in the shared run folder.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from llmexp.errors import LlmexpError
from llmexp.launch.display import say
from llmexp.launch.nodes.place import Place
from llmexp.launch.ranks import LOOPBACK, listening
from llmexp.record.duration import duration
from llmexp.record.result import RunStatus

# A machine that vanished without a word is known after idle + interval x count = 20 s.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class NodeError(LlmexpError):
    """A machine of the run did not come, or cannot do what is asked of it."""


class Line:
    """A connection that carries JSON objects; `alive` until the other side has gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._read, self.alive = connection, b"", True
        self._heard: deque[dict[str, Any]] = deque()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def fileno(self) -> int:
        """For select: readable when something was said, or the other side has gone."""
        return self._connection.fileno()

    @property
    def own_address(self) -> str:
        """This machine's, by which the other side has reached it, or it that one."""
        return str(self._connection.getsockname()[0])

    def say(self, **message: Any) -> None:
        """Send one object; to one that has gone, nothing."""
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.alive = False

    def heard(self) -> Iterator[dict[str, Any]]:
        """What has been said since; waits where nothing was, so call it when readable."""
        self._receive()
        while self._heard:
            yield self._heard.popleft()

    def wait(self, within_s: float) -> dict[str, Any] | None:
        """The next object; None where none comes in time or the other side goes."""
        deadline = time.monotonic() + within_s
        while not self._heard and self.alive and (left := deadline - time.monotonic()) > 0:
            if select.select([self], [], [], left)[0]:
                self._receive()
        return self._heard.popleft() if self._heard else None

    def close(self) -> None:
        """Leave; the other side learns of it."""
        self.alive = False
        self._connection.close()

    def _receive(self) -> None:
        try:
            got = self._connection.recv(65536)
            *lines, self._read = (self._read + got).split(b"\n")
            self._heard.extend(map(json.loads, lines))
            self.alive = bool(got)
        except (OSError, ValueError):  # ValueError: somebody else, who speaks another language
            self.alive = False


@dataclass
class Member:
    """Another machine: its number, what it said of itself, and how its part of the present repeat ended."""

    node: int
    about: dict[str, Any]
    line: Line = field(repr=False)
    code: int | None = None
    reason: str = ""
    status: RunStatus = RunStatus.FAILED
    """Of the run, where there is a reason."""
    killed_for_memory: bool = False

    def __str__(self) -> str:
        return f"node {self.node} ({self.about.get('host')})"

    def listen(self) -> None:
        """Take in what it has said."""
        for message in self.line.heard():
            if message["event"] == "ended":
                self.code, self.reason = message["code"], message["reason"]
                self.status, self.killed_for_memory = RunStatus(message["status"]), message["killed_for_memory"]


class Team:
    """All machines but the first, once they have come; on one machine there is nobody."""

    def __init__(self, place: Place, within_s: float) -> None:
        self.place, self._within_s = place, within_s
        self.members: list[Member] = []

    def start(self, repeat: Path, stack: str) -> dict[str, Any]:
        """Let all whose stack is this one start their part of a repeat; returns what the first machine fills into its command. Raises NodeError."""
        self.gather()
        address = next((member.line.own_address for member in self.members), LOOPBACK)
        meeting = {"address": address, "port": _free_port(address)}
        for member in self.members:
            member.code, member.reason, member.killed_for_memory = None, "", False
            member.line.say(event="start", repeat=str(repeat.absolute()), stack=stack, **meeting)
        return meeting | {"node": 0}

    def close(self) -> None:
        """Let the others go."""
        for member in self.members:
            member.line.close()

    def gather(self) -> None:
        """Wait until all are there; where one was lost, for another in its place. Raises NodeError."""
        for lost in (member for member in self.members if not member.line.alive):
            lost.line.close()
        self.members = [member for member in self.members if member.line.alive]
        if len(self.members) == self.place.nodes - 1:
            return
        say(f"waiting for {self._absent()} at {self.place.address}:{self.place.port} ...")
        deadline = time.monotonic() + self._within_s
        with socket.create_server(("", self.place.port), backlog=self.place.nodes) as server:
            while len(self.members) < self.place.nodes - 1:
                server.settimeout(max(deadline - time.monotonic(), 0.01))
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    where = f"{self.place.address}:{self.place.port}"
                    raise NodeError(f"{self._absent()} did not come to {where} within {duration(self._within_s)}") from None
                self._welcome(Line(connection), max(deadline - time.monotonic(), 1.0))

    def _welcome(self, line: Line, within_s: float) -> None:
        """Take in a machine that says who it is; others that find the port, and a second one of a number, are left standing."""
        about = line.wait(within_s) or {}
        if about.get("node") in self._missing():
            self.members.append(Member(about.pop("node"), about, line))
        else:
            line.close()

    def _missing(self) -> set[int]:
        return set(range(1, self.place.nodes)) - {member.node for member in self.members}

    def _absent(self) -> str:
        return "node " + ", ".join(map(str, sorted(self._missing())))


@cache
def team_of(place: Place, within_s: float) -> Team:
    """The machines of this process's runs: they come once and stay for all runs of a sweep."""
    return Team(place, within_s)


def _free_port(address: str) -> int:
    with listening(address, 0) as probe:
        return int(probe.getsockname()[1])
