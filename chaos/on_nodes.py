"""A sweep whose runs take two nodes: two drivers on this host that meet at a port, and strangers who come to it."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from chaos.driver import Driver, Place
from chaos.episode import Episode
from chaos.faults import Fault, Heal, MissedError
from chaos.tracker import free_port

ADDRESS = "127.0.0.1"
SECOND = "node.rank=1"
# Once the first node is gone, the second one is ended after this time, as the end of a job would do.
LEFT_FOR_S = 5.0
KNOCK_WITHIN_S = 60.0
# Not JSON, JSON that is no message, a message that nobody has signed, a long text, and nothing at all.
SAID = (b"\x80\x04\x95\n", b"[1]\n", b'{"node": 1, "host": "me", "cpu": {}}\n', b"x" * 100_000, b"")


@dataclass
class NodesEpisode(Episode):
    """An episode on two nodes; `driver` is that of the first node."""

    ports: list[int] = field(default_factory=list)

    @property
    def possible(self) -> Mapping[str, Fault]:
        """The faults of any host, and strangers."""
        return {**super().possible, "strangers at node 0": _strangers}

    def start_beside(self, place: Place | None = None) -> None:
        """Start one more driver on each node, the first node's last."""
        self.ports.append(free_port())
        nodes = ("hardware.nodes=2", "hardware.devices_per_node=1", "hardware.network_interface=lo")
        for rank in (SECOND, "node.rank=0"):
            self.further_words = (*nodes, f"node.address={ADDRESS}", f"node.port={self.ports[-1]}", rank)
            super().start_beside(place)

    def _pause(self) -> None:
        """Wait, and start the second node's driver again where it has ended: the first's waits minutes for it."""
        super()._pause()
        first, port = self.driver, f"node.port={self.ports[-1]}"
        seconds = [driver for driver in self.drivers if {SECOND, port} <= set(driver.words)]
        if first.lives and not any(driver.lives for driver in seconds):
            *shared, rank = self.further_words
            self.further_words = (*shared, SECOND)
            super().start_beside()
            self.further_words = (*shared, rank)
            self.drivers.remove(first)
            self.drivers.append(first)

    def start_anew(self) -> None:
        """Wait for the existing drivers, then start others."""
        self._end()
        self._start()

    def _living(self) -> list[Driver]:
        return [driver for driver in super()._living() if SECOND not in driver.words]

    def _ending_of(self, driver: Driver) -> int | None:
        if SECOND not in driver.words:
            return super()._ending_of(driver)
        for first in self._living():
            first.ends()
        if driver.ends_within(LEFT_FOR_S) is None:
            driver.send(signal.SIGTERM)
        return super()._ending_of(driver)


def _strangers(episode: Episode) -> Heal:
    """Connect before the second node does, and stay.

    This happens at the next start of the sweep, because the nodes meet only once.
    """
    assert isinstance(episode, NodesEpisode)
    episode.start_anew()
    deadline, stack = time.monotonic() + KNOCK_WITHIN_S, ExitStack()
    while True:
        try:
            for said in SAID:
                stranger = stack.enter_context(socket.create_connection((ADDRESS, episode.ports[-1]), timeout=1.0))
                stranger.sendall(said)
            return stack.close
        except OSError:
            if time.monotonic() > deadline:
                stack.close()
                raise MissedError from None
            time.sleep(0.005)
