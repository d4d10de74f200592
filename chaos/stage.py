"""The tracking server, the network to it and the SLURM cluster that episodes share.

Each is started when the first episode needs it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

import psutil

from chaos.cluster import Cluster
from chaos.containers import Containers
from chaos.disk import Disk
from chaos.episode import Episode
from chaos.in_turns import InterleavedEpisode
from chaos.on_nodes import NodesEpisode
from chaos.on_servers import ServingEpisode
from chaos.on_slurm import SlurmEpisode
from chaos.surroundings import Surroundings
from chaos.tracker import Network, Server

# The places where episodes play: here, here with servers under loads, here with a tracking server, on a SLURM, with
# ranks in containers, here with repeats in turns, on two nodes. All record to SQLite, except that "server" records to a
# server over a network.
PLACES = ("sqlite", "servers", "server", "slurm", "containers", "interleaved", "nodes")


class Stage:
    """The shared parts of all episodes in a scratch folder, as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextmanager
    def episode(self, number: int, place: str, chance: random.Random) -> Iterator[Episode]:
        """Prepare an episode on a disk of its own."""
        cluster = self._cluster.env if place == "slurm" else {}
        surroundings = Surroundings(self._folder / str(number), self._folder / str(number) / "outputs", cluster)
        with Disk(surroundings.outputs) as disk, _ended(surroundings):
            if place == "slurm":
                yield SlurmEpisode(number, chance, surroundings, disk, None, cluster=self._cluster)
            elif place == "containers":
                with Containers(surroundings) as containers:
                    yield Episode(number, chance, surroundings, disk, None, containers.words)
            elif place == "interleaved":
                yield InterleavedEpisode(number, chance, surroundings, disk, None)
            elif place == "servers":
                yield ServingEpisode(number, chance, surroundings, disk, None)
            elif place == "nodes":
                yield NodesEpisode(number, chance, surroundings, disk, None)
            else:
                yield Episode(number, chance, surroundings, disk, self._tracker if place == "server" else None)

    @cached_property
    def _tracker(self) -> tuple[Server, Network]:
        server = Server(self._folder / "server")
        self._stack.callback(server.kill)
        server.start()
        return server, Network(server.port)

    @cached_property
    def _cluster(self) -> Cluster:
        root = self._stack.enter_context(
            TemporaryDirectory(prefix="llmexp-slurm-", ignore_cleanup_errors=True)
        )  # a socket's path must be short
        return self._stack.enter_context(Cluster(Path(root)))


@contextmanager
def _ended(surroundings: Surroundings) -> Iterator[None]:
    """End all processes at the exit, also where the suite is interrupted."""
    try:
        yield
    finally:
        for process in surroundings.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
