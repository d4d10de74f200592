"""The logs of a run in one stream: those of its supervisor, its launcher and its ranks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from llmexp.record.folder import GOES_ON, RunFolder
from llmexp.slurm.jobs import submissions

FOLLOW_S = 0.5


def print_logs(folder: RunFolder, follow: bool) -> None:
    """Print the latest attempt's logs, each under its path; with `follow`, go on until the run has ended."""
    printed: dict[Path, int] = {}
    last = None
    while True:
        goes_on = follow and folder.state() in GOES_ON
        for path in log_files(folder):
            last = _print_new(path, printed, last)
        if not goes_on:
            if not printed:
                print(f"no job, launcher or rank has printed anything: {_why(folder)}")
            return
        sys.stdout.flush()
        time.sleep(FOLLOW_S)


def _why(folder: RunFolder) -> str:
    """Say how the run ended, or that it has not."""
    result = folder.result()
    return f"{result.status}, {result.reason}".removesuffix(", ") if result else f"the run is {folder.state()}"


def log_files(folder: RunFolder) -> Iterator[Path]:
    """Yield the SLURM job's log if there is one, then the latest repeat's: the launcher's, then each rank's."""
    yield from (run.log for run in submissions([folder]) if run.log.exists())
    repeats = folder.repeats()
    if repeats:
        yield from sorted(repeats[-1].glob("log.*.txt"), key=_launcher_first)


def _launcher_first(log: Path) -> int:
    rank = log.suffixes[0][1:]
    return int(rank) if rank.isdigit() else -1


def _print_new(path: Path, printed: dict[Path, int], last: Path | None) -> Path | None:
    """Print the new lines of a log, under its path if another log came before.

    Returns the path of the log that was printed last.
    """
    with path.open("rb") as file:
        file.seek(printed.get(path, 0))
        gained = file.read()
    if not gained:
        return last
    if path != last:
        print(f"==> {path} <==")
    printed[path] = printed.get(path, 0) + len(gained)
    print(
        gained.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n"), end=""
    )  # progress bars begin their line again
    return path
