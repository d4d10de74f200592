"""Where runs stand, read from their folders alone, and from SLURM where it has jobs of theirs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from llmexp.errors import SlurmError
from llmexp.record.folder import RunFolder
from llmexp.record.index import UNREADABLE, Standing, standings
from llmexp.slurm.catch_up import catch_up
from llmexp.slurm.jobs import Submitted, readable
from llmexp.slurm.queue import JobState

HEADERS = ("run", "state", "repeats", "measured steps", "reason")
Job = tuple[Submitted, JobState]


def print_status(folders: Sequence[RunFolder]) -> None:
    """Print a line a run: how far it came, how it ended and why; then how many runs are in which state. SLURM is asked about its jobs first."""
    jobs = jobs_under_way(folders)
    found = [with_job(standing, jobs.get(folder.path)) for folder, standing in zip(folders, standings(folders), strict=True)]
    rows = [HEADERS, *(row(folder, standing) for folder, standing in zip(folders, found, strict=True))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for *cells, reason in rows:
        print("  ".join((*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), reason)).rstrip())
    if len(found) > 1:
        states = Counter(standing.state for standing in found).most_common()
        print(f"{len(found)} runs: {', '.join(f'{count} {state}' for state, count in states)}")


def jobs_under_way(folders: Sequence[RunFolder]) -> dict[Path, Job]:
    """The jobs that SLURM has of these runs, after what has ended is settled; none, and a line on it, where it or a file does not tell."""
    known, wrong = readable(folders)
    for unreadable in wrong:
        print(f"llmexp: {unreadable}", file=sys.stderr)
    try:
        return {run.folder.path: (run, state) for run, state in catch_up(known).items()}
    except SlurmError as error:
        print(f"llmexp: SLURM does not answer, so its jobs are as their folders say: {error}", file=sys.stderr)
        return {}


def with_job(standing: Standing, job: Job | None) -> Standing:
    """The standing of a run that a job will begin, or has begun: an earlier result does not count any more."""
    if job is None:
        return standing
    submitted, state = job
    told = f"job {submitted.job} {state}"
    if state.is_hopeless:
        told += "; the same command again takes it up, or llmexp cancel ends it"
    if state.name in ("PENDING", "CONFIGURING"):
        return replace(standing, state="queued", reason=told, repeats=0, steps=0)
    return replace(standing, state="running", reason=told)


def row(folder: RunFolder, standing: Standing) -> tuple[str, ...]:
    """The run's name, state, repeats and measured steps of those planned, and reason, in one line; what cannot be read is said in the reason."""
    name = f"{folder.path.parent.name}/{folder.path.name}"
    if standing.state == UNREADABLE:
        return (name, standing.state, "", "", standing.reason)
    repeats, steps = f"{standing.repeats}/{standing.planned_repeats}", f"{standing.steps}/{standing.planned_steps}"
    return (name, standing.state, repeats, steps, " ".join(standing.reason.split()))
