"""Show the state of jobs on standard error: a live table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmexp.errors import RecordError
from llmexp.launch.display import say
from llmexp.launch.progress import Progress
from llmexp.record.plan import RunPlan
from llmexp.slurm.follow import Followed
from llmexp.slurm.jobs import Submitted
from llmexp.slurm.queue import QueuedJob

if TYPE_CHECKING:
    from rich.table import Table

Show = Callable[[Sequence[Followed]], None]
MOST_ROWS = 20
# The filesystem serves the measured ranks too, so it is read rarely.
READ_EVERY_S = 2.0


@contextmanager
def board() -> Iterator[Show]:
    """Yield a function that shows the present states; it may be called at every tick."""
    with _living() if sys.stderr.isatty() else nullcontext(_plain()) as show:
        yield show


def _plain() -> Show:
    said: dict[QueuedJob, str] = {}

    def show(runs: Sequence[Followed]) -> None:
        for run in runs:
            job, state = run.submitted.job, str(run.state or "")
            if not run.is_done and run.state and said.get(job) != state:
                said[job] = state
                say(f"{run.submitted.label} · job {job} · {state}")

    return show


@contextmanager
def _living() -> Iterator[Show]:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        advances = Advances()
        yield lambda runs: live.update(table_of(runs, advances), refresh=True)


def table_of(runs: Sequence[Followed], advances: Advances) -> Table:
    """Return a table of the jobs that have not ended, running ones first; its title counts the jobs in each state."""
    from rich.table import Table

    left = sorted((run for run in runs if not run.is_done), key=lambda run: not _runs(run))
    counts = Counter(run.state.name.lower() if run.state else "submitted" for run in left)
    ended = len(runs) - len(left)
    told = ", ".join(f"{count} {name}" for name, count in [*counts.items(), ("ended", ended)])
    table = Table(
        "run",
        "job",
        "state",
        "progress",
        title=f"{told} of {len(runs)}",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for run in left[:MOST_ROWS]:
        table.add_row(
            run.submitted.label,
            str(run.submitted.job),
            str(run.state or "submitted"),
            advances.of(run.submitted) if _runs(run) else "",
        )
    if len(left) > MOST_ROWS:
        table.add_row(f"and {len(left) - MOST_ROWS} more", "", "", "")
    return table


def _runs(run: Followed) -> bool:
    return run.state is not None and run.state.name == "RUNNING"


@dataclass
class _Run:
    """A run's progress, the inode of the repeat's folder that it describes, and when to read it again."""

    progress: Progress
    repeat: int = 0
    read_at_s: float = 0.0


class Advances:
    """Describes each run's steps and rate; it reads only what is new, and gives '' where it cannot read."""

    def __init__(self) -> None:
        self._runs: dict[QueuedJob, _Run] = {}

    def of(self, run: Submitted) -> str:
        """Return the run's progress in words; '' before the first repeat has begun."""
        try:
            known = self._runs.get(run.job) or self._runs.setdefault(
                run.job, _Run(Progress(RunPlan.read(run.folder.plan_path)))
            )
            self._read(run, known)
        except (OSError, RecordError, ValueError):
            return ""
        return known.progress.advance if known.repeat else ""

    def _read(self, run: Submitted, known: _Run) -> None:
        if time.monotonic() < known.read_at_s:
            return
        known.read_at_s = time.monotonic() + READ_EVERY_S
        begun = run.folder.repeats()
        if not begun:
            known.repeat = 0
            return
        repeat = begun[-1].stat().st_ino  # after preemption the same name belongs to another folder
        if repeat != known.repeat:
            known.progress.begin(len(begun) - 1, begun[-1])
            known.repeat = repeat
        known.progress.update()
