"""`python -m benchmarks.commits COMMIT` compares what two commits measure, by llmexp's own comparison of sets.

Each side's code lies in a folder of its own. Both measure the same methods in turn, and `llmexp compare` judges.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.commands import LLMEXP, METHODS, TINY

HERE = Path(__file__).parents[1]
BASE, HEAD = "base", "head"
PROTOCOL = ("measure=quick", "measure.repeats=1", "measure.profile=false", "tracking=none", "rerun=all")


def importable(checkout: Path, place: Path) -> Path:
    """Lay a checkout's packages out as they are imported, and return the folder that PYTHONPATH has to name."""
    package = place / "llmexp"
    package.mkdir(parents=True)
    parts = [*(checkout / "llmexp").iterdir(), checkout / "conf", checkout / "launchers"]
    for part in parts:
        if part.name != "__pycache__":
            (package / part.name).symlink_to(part)
    (place / "hydra_plugins").symlink_to(checkout / "hydra_plugins")
    return place


@contextmanager
def checked_out(commit: str, place: Path) -> Iterator[Path]:
    """Check a commit out beside the working tree for the length of the block; raises CalledProcessError."""
    try:
        subprocess.run(["git", "-C", HERE, "worktree", "add", "--quiet", "--detach", place, commit], check=True)
        yield place
    finally:
        if place.exists():
            # Twice, because git locks a working tree until it is whole.
            subprocess.run(["git", "-C", HERE, "worktree", "remove", "--force", "--force", place], check=True)


def turns(methods: Sequence[str], repeats: int) -> list[tuple[int, str, str]]:
    """Return (repeat, method, side) in the order of measuring.

    The sides take turns repeat by repeat, so that a slower minute falls on both. Each goes first for every other
    method, and for every other repeat of one.
    """
    sides = ((BASE, HEAD), (HEAD, BASE))
    return [
        (repeat, method, side)
        for repeat in range(repeats)
        for number, method in enumerate(methods)
        for side in sides[(repeat + number) % 2]
    ]


def measured(path: Path, side: str, method: str, repeat: int, folder: Path) -> int:
    """Measure a method once with one side's code, into a sweep of its own; return the command's exit code."""
    words = (*TINY, *PROTOCOL, f"method={method}", f"sweep.name={side}-{repeat}")
    return _exit_code(words, folder, PYTHONPATH=str(path))


def _exit_code(words: Sequence[str], folder: Path, **variables: str) -> int:
    """Run llmexp, and end it and its ranks where this program is ended meanwhile."""
    with subprocess.Popen([*LLMEXP, *words], cwd=folder, env=os.environ | variables) as process:
        try:
            return process.wait()
        finally:
            process.terminate()


def main() -> int:
    """Measure both sides; return 2 where one of them fails, else the exit code of the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits", description=__doc__)
    parser.add_argument("commit", help="the first set is measured with its code, the second with the working tree's")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--margin", default="2%", help="the least difference that matters")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the clean-up runs: the commit's working tree
    with (
        tempfile.TemporaryDirectory(prefix="llmexp-commits-") as name,
        checked_out(args.commit, Path(name) / "checkout") as checkout,
    ):
        folder = Path(name)
        paths = {
            BASE: importable(checkout, folder / "base-packages"),
            HEAD: importable(HERE, folder / "head-packages"),
        }
        for repeat, method, side in turns(METHODS, args.repeats):
            if measured(paths[side], side, method, repeat, folder):
                return 2
        base, head = (str(folder / "outputs" / f"{side}-*") for side in (BASE, HEAD))
        return _exit_code(["compare", base, head, "--pool", "--margin", args.margin], folder)


if __name__ == "__main__":
    sys.exit(main())
