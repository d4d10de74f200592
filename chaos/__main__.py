"""`python -m chaos`: break sweeps, print the faults by class, the runs and the losses; 1 where anything was lost."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from chaos.disk import Disk
from chaos.episode import METHODS, Episode
from chaos.surroundings import Surroundings
from chaos.tracker import Network, Server

FAULTS_AN_EPISODE = 10
# Of so many episodes one records to a server over a network, the others to SQLite.
SERVER_EVERY = 2


def main() -> int:
    """Play episodes until there were enough faults."""
    parser = argparse.ArgumentParser("python -m chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="which faults come, and when; what they meet depends on the machine too")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the clean-up: the server, the mounts
    with tempfile.TemporaryDirectory(prefix="llmexp-chaos-", ignore_cleanup_errors=True) as folder:
        return play(args.faults, args.seed, Path(folder))


def play(faults: int, seed: int, folder: Path) -> int:
    """Play in a scratch folder; 0 where nothing was lost."""
    found: Counter[str] = Counter()
    losses: list[str] = []
    began_s = time.monotonic()
    with _tracker(folder, wanted=faults > FAULTS_AN_EPISODE) as (server, network):
        number = 0
        while found.total() < faults:
            surroundings = Surroundings(folder / str(number), folder / str(number) / "outputs")
            with Disk(surroundings.outputs) as disk:
                chance = random.Random(f"{seed}/{number}")
                episode = Episode(number, chance, surroundings, disk, server, network, remote=bool(number % SERVER_EVERY))
                episode.play(min(FAULTS_AN_EPISODE, faults - found.total()))
            found, losses, number = found + episode.faults, losses + episode.losses, number + 1
            print(f"{time.monotonic() - began_s:.0f} s, {found.total()} faults: {', '.join(episode.faults.elements())}", flush=True)
            for loss in episode.losses:
                print(f"  LOST {loss}", flush=True)
    classes = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
    print(f"{found.total()} faults ({classes}), {number * len(METHODS)} runs, {len(losses)} losses")
    return 1 if losses else 0


@contextmanager
def _tracker(folder: Path, wanted: bool) -> Iterator[tuple[Server, Network]]:
    server = Server(folder / "server")
    with ExitStack() as stack:
        stack.callback(server.kill)
        if wanted:
            server.start()
        yield server, Network(server.port)


if __name__ == "__main__":
    sys.exit(main())
