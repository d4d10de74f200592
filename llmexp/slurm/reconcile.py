"""Take up runs that some other shell submitted: settle those whose jobs have ended, and tell where the others stand."""

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

# Whoever submitted has looked by then; a line left by a refusal that was not noted would speak for ever.
UNKNOWN_FOR = timedelta(days=1)


def under_way(folders: Iterable[RunFolder]) -> dict[Submitted, JobState]:
    """Runs whose latest job is queued or running, by SLURM's word; raises SlurmError where it gives none."""
    return {run: state for run, state in _asked(folders).items() if not state.has_ended}


def reconcile(folders: Iterable[RunFolder]) -> dict[Submitted, JobState]:
    """Write the results that ended jobs could not, and give the other jobs; raises SlurmError where SLURM does not answer.

    Its silence on what it was asked to take long ago, without its answer being noted, is borne.
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
    """SLURM's word on every run that its latest job has given no answer yet."""
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
    """Note the numbers of jobs that SLURM took, whose driver was killed before it could."""
    lost = unanswered(folders)
    if lost and has_slurm():
        arrays = arrays_of(one.name for one in lost)
        note(one.taken(arrays[one.name]) for one in lost if one.name in arrays)


def _has_answered(run: Submitted) -> bool:
    """False too where the result cannot be read, so that SLURM is asked."""
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
