"""The progress of the runs in running jobs, read from what rank 0 writes on the shared filesystem."""

from __future__ import annotations

import time
from dataclasses import dataclass

from llmexp.errors import RecordError
from llmexp.launch.progress import Progress
from llmexp.record.plan import RunPlan
from llmexp.slurm.jobs import Submitted
from llmexp.slurm.queue import QueuedJob

# The filesystem serves the measured ranks too, so it is read rarely.
READ_EVERY_S = 2.0


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
