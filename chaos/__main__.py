"""`python -m chaos`: break sweeps, print the faults by class, the runs and the losses; 1 where anything was lost."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from chaos.cluster import missing
from chaos.episode import METHODS
from chaos.stage import PLACES, Stage

FAULTS_AN_EPISODE = 10


def main() -> int:
    """Play episodes until there were enough faults; return the exit code."""
    parser = argparse.ArgumentParser("python -m chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument(
        "--seed", type=int, default=0, help="which faults come, and when; what they meet depends on the machine too"
    )
    parser.add_argument(
        "--only",
        choices=PLACES,
        help="of the places where sweeps run and record; without it all in turn, SLURM where there is one",
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the clean-up runs: the server, the mounts
    places = _places(args.only)
    if not places:
        return 2
    with tempfile.TemporaryDirectory(prefix="llmexp-chaos-", ignore_cleanup_errors=True) as folder:
        return play(args.faults, args.seed, Path(folder), places)


def play(faults: int, seed: int, folder: Path, places: Sequence[str]) -> int:
    """Play in a scratch folder; return 0 where nothing was lost."""
    found: Counter[str] = Counter()
    losses: list[str] = []
    began_s = time.monotonic()
    with Stage(folder) as stage:
        number = 0
        while found.total() < faults:
            with stage.episode(number, places[number % len(places)], random.Random(f"{seed}/{number}")) as episode:
                episode.play(min(FAULTS_AN_EPISODE, faults - found.total()))
            found, losses, number = found + episode.faults, losses + episode.losses, number + 1
            print(
                f"{time.monotonic() - began_s:.0f} s, {found.total()} faults: {', '.join(episode.faults.elements())}",
                flush=True,
            )
            for loss in episode.losses:
                print(f"  LOST {loss}", flush=True)
    classes = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
    print(f"{found.total()} faults ({classes}), {number * len(METHODS)} runs, {len(losses)} losses")
    return 1 if losses else 0


def _places(only: str | None) -> Sequence[str]:
    if only and only != "slurm":
        return [only]
    lacking = missing()
    if lacking:
        print(
            f"no SLURM can be brought up here, its faults are left out: it needs {', '.join(lacking)}", file=sys.stderr
        )
    if only:
        return [] if lacking else [only]
    return [place for place in PLACES if place != "slurm" or not lacking]


if __name__ == "__main__":
    sys.exit(main())
