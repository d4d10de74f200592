"""The state of runs, read from their folders alone, and from SLURM where it has jobs of theirs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from llmexp.errors import SlurmError
from llmexp.record.folder import RunFolder
from llmexp.record.index import UNREADABLE, RunOverview, overviews
from llmexp.record.naming import apart
from llmexp.record.result import RunStatus
from llmexp.slurm.jobs import Submitted, readable
from llmexp.slurm.queue import JobState
from llmexp.slurm.reconcile import reconcile

HEADERS = ("run", "state", "repeats", "measured", "asked for", "reason")
# In these states the same command still has something to do.
OPEN = {"planned", *(status.value for status in RunStatus if not status.is_answer)}
StatusJob = tuple[Submitted, JobState]


def print_status(folders: Sequence[RunFolder]) -> None:
    """Print a line a run: its progress, what tells it apart in its sweep, how it ended and why.

    The number of runs in each state follows, and what to do about those without an answer. SLURM is asked about its
    jobs first.
    """
    jobs = jobs_under_way(folders)
    found = [
        with_job(standing, jobs.get(folder.path)) for folder, standing in zip(folders, overviews(folders), strict=True)
    ]
    told = told_apart(folders, found)
    rows = [row(folder, standing, told.get(folder.path, "")) for folder, standing in zip(folders, found, strict=True)]
    columns = [(header, *cells) for header, cells in zip(HEADERS, zip(*rows, strict=True), strict=True) if any(cells)]
    widths = [max(map(len, column)) for column in columns]
    for cells in zip(*columns, strict=True):
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    if len(found) > 1:
        states = Counter(standing.state for standing in found).most_common()
        print(f"{len(found)} runs: {', '.join(f'{count} {state}' for state, count in states)}")
    if undone := [state for state in OPEN if any(standing.state == state for standing in found)]:
        print(
            f"{', '.join(sorted(undone))}: the same command measures these runs and keeps the others; llmexp logs "
            "RUN shows what a run printed"
        )


def jobs_under_way(folders: Sequence[RunFolder]) -> dict[Path, StatusJob]:
    """Return the jobs that SLURM has of these runs, after ended jobs are settled.

    Where SLURM or a file cannot be read, a line on standard error says so, and its jobs are left out.
    """
    known, wrong = readable(folders)
    for unreadable in wrong:
        print(f"llmexp: {unreadable}", file=sys.stderr)
    try:
        return {run.folder.path: (run, state) for run, state in reconcile(known).items()}
    except SlurmError as error:
        print(f"llmexp: SLURM does not answer, so its jobs' states come from their folders: {error}", file=sys.stderr)
        return {}


def with_job(standing: RunOverview, job: StatusJob | None) -> RunOverview:
    """Return the overview of a run that a job will begin or has begun; an earlier result no longer counts."""
    if job is None:
        return standing
    submitted, state = job
    told = f"job {submitted.job} {state}"
    if state.is_hopeless:
        told += "; the same command resumes it, or llmexp cancel ends it"
    if state.name in ("PENDING", "CONFIGURING"):
        return replace(standing, state="queued", reason=told, repeats=0, samples=0)
    return replace(standing, state="running", reason=told)


def told_apart(folders: Sequence[RunFolder], found: Sequence[RunOverview]) -> dict[Path, str]:
    """Return for each readable run the words of its command that not all runs of its sweep have."""
    by_sweep: dict[Path, dict[Path, list[str]]] = {}
    for folder, standing in zip(folders, found, strict=True):
        if standing.state != UNREADABLE:
            by_sweep.setdefault(folder.sweep, {})[folder.path] = standing.words
    return {
        path: words for runs in by_sweep.values() for path, words in zip(runs, apart(list(runs.values())), strict=True)
    }


def row(folder: RunFolder, standing: RunOverview, told: str) -> tuple[str, ...]:
    """Return a line's cells; what cannot be read is said in the reason."""
    name = f"{folder.sweep.name}/{folder.path.name}"
    if standing.state == UNREADABLE:
        return (name, standing.state, "", "", told, standing.reason)
    repeats, measured = (
        f"{standing.repeats}/{standing.planned_repeats}",
        f"{standing.samples}/{standing.planned_samples}" if standing.planned_samples else str(standing.samples),
    )
    return (name, standing.state, repeats, measured, told, " ".join(standing.reason.split()))
