"""The machines of a run as the first one sees them.

The first machine tells the others when to start and stop, and learns at once when one is lost. Commands are not sent:
each machine reads the plan in the shared run folder.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from llmexp.launch.display import say
from llmexp.launch.nodes.channel import PATIENCE_S, Channel
from llmexp.launch.nodes.messages import Ended, Here, Start, Welcome
from llmexp.launch.nodes.place import NodeError, Place
from llmexp.launch.nodes.secret import make_secret
from llmexp.launch.ranks import LOOPBACK, listening
from llmexp.record.duration import duration
from llmexp.record.port import Port
from llmexp.record.result import RunStatus

# Further connections wait until some of these strangers have been rejected.
MOST_KNOCKING = 64


@dataclass(eq=False)
class Member:
    """Another machine: its number, its own description, and how its part of the present repeat ended."""

    node: int
    host: str
    cpu: dict[str, Any]
    channel: Channel = field(repr=False)
    code: int | None = None
    reason: str = ""
    status: RunStatus = RunStatus.FAILED
    """The run's status, where there is a reason."""
    killed_for_memory: bool = False

    def __str__(self) -> str:
        return f"node {self.node} ({self.host})"

    def listen(self) -> None:
        """Process the messages that it has sent."""
        for message in self.channel.heard():
            if isinstance(message, Ended):
                self.code, self.reason = message.code, message.reason
                self.status, self.killed_for_memory = message.status, message.killed_for_memory


class PeerNodes:
    """All machines but the first, once they have come; empty on one machine. `sweep` is the folder that all share."""

    def __init__(self, place: Place, within_s: float, sweep: Path) -> None:
        self.place, self._within_s, self._sweep = place, within_s, sweep
        self.members: list[Member] = []

    @contextmanager
    def started(self, repeat: Path, stack: str) -> Iterator[dict[str, Any]]:
        """Start the others' parts of a repeat; yield the values for the first machine's command; raises NodeError.

        Only a machine whose stack is `stack` takes part. The port at which they meet is theirs until the block ends.
        """
        self.gather()
        address = next((member.channel.own_address for member in self.members), LOOPBACK)
        # It takes seconds until they listen there.
        with Port(hold=sys.platform == "linux", address=address) as port:
            meeting = {"address": address, "port": port.number}
            for member in self.members:
                member.code, member.reason, member.killed_for_memory = None, "", False
                member.channel.say(Start(repeat=str(repeat.absolute()), stack=stack, **meeting))
            yield meeting | {"node": 0}

    def close(self) -> None:
        """Close the connections, so that the others stop waiting."""
        for member in self.members:
            member.channel.close()

    def gather(self) -> None:
        """Wait until all machines are there, or a substitute for each lost one; raises NodeError."""
        for lost in (member for member in self.members if not member.channel.alive):
            lost.channel.close()
        self.members = [member for member in self.members if member.channel.alive]
        if not self._missing():
            return
        say(f"waiting for {self._absent()} at {self.place.address}:{self.place.port} ...")
        with listening(_bound(self.place.address), self.place.port) as server:
            self._let_in(server, make_secret(self._sweep, self.place.port))

    def _let_in(self, server: socket.socket, secret: bytes) -> None:
        """Accept each missing machine that knows the secret.

        A stranger or a silent connection is closed, and delays nobody.
        """
        knocking: dict[Channel, float] = {}
        try:
            self._answer(server, secret, knocking)
        finally:
            for channel in knocking:
                channel.close()

    def _answer(self, server: socket.socket, secret: bytes, knocking: dict[Channel, float]) -> None:
        deadline = time.monotonic() + self._within_s
        while self._missing():
            if (left := deadline - time.monotonic()) <= 0:
                where = f"{self.place.address}:{self.place.port}"
                raise NodeError(f"{self._absent()} did not connect to {where} within {duration(self._within_s)}")
            waited_for: list[socket.socket | Channel] = [
                *([server] if len(knocking) < MOST_KNOCKING else []),
                *knocking,
            ]
            ready = select.select(waited_for, [], [], min(left, 1.0))[0]
            for channel, until in list(knocking.items()):
                if channel in ready and self._take_in(channel):
                    del knocking[channel]
                elif not channel.alive or time.monotonic() > until:
                    channel.close()
                    del knocking[channel]
            if server in ready:
                knocking[Channel(server.accept()[0], secret)] = time.monotonic() + PATIENCE_S

    def _take_in(self, channel: Channel) -> bool:
        """Say whether a missing machine has come; a stranger, or a machine that is there already, is rejected."""
        for message in channel.heard():
            if isinstance(message, Here) and message.node in self._missing():
                channel.say(Welcome())
                self.members.append(Member(message.node, message.host, message.cpu, channel))
                return True
            channel.close()
        return False

    def _missing(self) -> set[int]:
        return set(range(1, self.place.nodes)) - {member.node for member in self.members}

    def _absent(self) -> str:
        return "node " + ", ".join(map(str, sorted(self._missing())))


@cache
def peers_of(place: Place, within_s: float, sweep: Path) -> PeerNodes:
    """Return the machines of this process's runs: they come once and stay for all runs of a sweep."""
    return PeerNodes(place, within_s, sweep)


def _bound(address: str) -> str:
    """Return the address to listen at: this machine's own, or all of them ('') where its name resolves to loopback.

    Debian maps a machine's own name to the loopback interface.
    """
    found = str(socket.getaddrinfo(address, None)[0][4][0])
    return found if not ip_address(found).is_loopback or address in ("localhost", found) else ""
