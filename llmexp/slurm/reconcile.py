"""Take up runs that another shell submitted: settle those whose jobs have ended, and give the state of the others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from llmexp.errors import RecordError, SlurmError
from llmexp.record.folder import RunFolder
from llmexp.slurm.finalize import finalize_ended
from llmexp.slurm.follow import GRACE_S
from llmexp.slurm.jobs import Intent, Submitted, note, submissions, unanswered
from llmexp.slurm.queue import JobState, arrays_of, has_slurm, states

# The submitting user has looked by then. Without this limit, a refusal that was not recorded would be reported for
# ever.
UNKNOWN_FOR = timedelta(days=1)


def under_way(folders: Iterable[RunFolder]) -> dict[Submitted, JobState]:
    """Return runs whose latest job SLURM reports as queued or running; raises SlurmError where it does not answer."""
    return {run: state for run, state in _asked(folders).items() if not state.has_ended}


def reconcile(folders: Iterable[RunFolder]) -> dict[Submitted, JobState]:
    """Write the results that ended jobs could not write, and return the other jobs.

    Raises SlurmError where SLURM does not answer, unless the only open question is an old request without a recorded
    answer.
    """
    folders = list(folders)
    try:
        asked = _asked(folders)
    except SlurmError:
        if _expected(folders) or any(map(_is_recent, unanswered(folders))):
            raise
        return {}
    _settle([(run, state) for run, state in asked.items() if state.has_ended and not run.folder.result_path.exists()])
    return {run: state for run, state in asked.items() if not state.has_ended}


def _asked(folders: Iterable[RunFolder]) -> dict[Submitted, JobState]:
    """Return SLURM's state of every run that has no answer from its latest job yet."""
    folders = list(folders)
    _find_lost(folders)
    known = _expected(folders)
    if not known or not has_slurm():
        return {}
    found = states(run.job for run in known)
    return {run: found[run.job] for run in known}


def _expected(folders: Sequence[RunFolder]) -> list[Submitted]:
    return [run for run in submissions(folders) if not _has_answered(run)]


def _is_recent(lost: Intent) -> bool:
    return not lost.at or datetime.now(UTC) - datetime.fromisoformat(lost.at) < UNKNOWN_FOR


def _find_lost(folders: Sequence[RunFolder]) -> None:
    """Record the numbers of jobs that SLURM took from a driver that was killed before it could record them."""
    lost = unanswered(folders)
    if lost and has_slurm():
        arrays = arrays_of(one.name for one in lost)
        note(one.taken(arrays[one.name]) for one in lost if one.name in arrays)


def _has_answered(run: Submitted) -> bool:
    """Say whether the run has an answer; False too where the result cannot be read, so that SLURM is asked."""
    try:
        result = run.new_result()
    except RecordError:
        return False
    return result is not None and result.status.is_answer


def _settle(lost: Sequence[tuple[Submitted, JobState]]) -> None:
    if lost:
        time.sleep(GRACE_S)
    for run, state in lost:
        finalize_ended(run, state)
