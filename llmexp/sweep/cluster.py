"""A sweep on SLURM: it submits missing runs, waits for those already under way, and keeps existing answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from llmexp.errors import DamagedError, RecordError
from llmexp.launch.attempt import only_attempt, set_aside
from llmexp.launch.preflight import certain_skip
from llmexp.launch.source import missing_model
from llmexp.launch.stack import stack_digest
from llmexp.record.environment import recorded_device_model
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.slurm.board import board
from llmexp.slurm.finalize import skip
from llmexp.slurm.follow import Followed, follow
from llmexp.slurm.jobs import Submitted, only_submitter, readable
from llmexp.slurm.options import SlurmOptions
from llmexp.slurm.own import own
from llmexp.slurm.queue import cancel as cancel_jobs
from llmexp.slurm.queue import check_slurm
from llmexp.slurm.reconcile import under_way
from llmexp.slurm.submit import submit
from llmexp.sweep.levels import levels, maker_of
from llmexp.sweep.measuring import folder_of, record
from llmexp.sweep.resume import LOST_RESULT, restored_plan, why_again


class RunsOnCluster:
    """Submits the missing runs to SLURM and waits for them."""

    measures_here = False

    def __init__(self, options: SlurmOptions) -> None:
        self._options = options

    def run(self, plans: Sequence[RunPlan]) -> Sequence[bool] | None:
        """Say of each plan whether it has an answer; None with `detach`, where the command does not wait."""
        planned = [(plan, folder_of(plan)) for plan in plans]
        with only_submitter(planned[0][1].path.parent):
            queued = list(under_way(folder for _, folder in planned))
            submitted: list[Submitted] = []
            for level in levels(plans):
                submitted += self._submit(level, [*queued, *submitted])
        _announce(submitted, queued)
        if self._options.detach:
            return None
        with board() as show:
            ended = follow([*queued, *submitted], self._options, show)
        return _answers(planned, ended)

    def _submit(self, plans: Sequence[RunPlan], queued: Sequence[Submitted]) -> list[Submitted]:
        """Submit those of these plans that need a job; each waits for the job of the run that it starts from.

        A run that waits may have an earlier result: its job sees whether that still holds.
        """
        jobs = {run.folder.path.name.rpartition("_")[2]: str(run.job) for run in queued}
        after = {plan.id: jobs[maker] for plan in plans if (maker := maker_of(plan)) in jobs}
        missing = [
            (plan, folder)
            for plan in plans
            for folder in (folder_of(plan),)
            if plan.id not in jobs and (plan.id in after or not (_is_kept(plan, folder) or _is_skipped(plan, folder)))
        ]
        return submit(missing, self._options, "llmexp.sweep.allocated", after) if missing else []


def cancel(folders: Sequence[RunFolder], named: Sequence[Path]) -> bool:
    """Cancel the jobs of runs that lie below the named paths, and print which; raises SlurmError or ConfigError.

    Returns False where a job is left, and prints why: the sweep's jobs cannot be read, do not belong to the sweep, or
    were found through a link.
    """
    check_slurm()
    there, left = _below(named, folders)
    known, unreadable = readable(there)
    waiting = list(under_way(known))
    jobs = own(waiting)
    left += [str(error) for error in unreadable]
    left += [_not_own(run) for run in waiting if run not in jobs]
    for why in left:
        print(f"llmexp: {why}", file=sys.stderr)
    cancel_jobs([run.job for run in jobs])
    print(
        f"cancelled: job {', '.join(str(run.job) for run in jobs)}"
        if jobs
        else "no SLURM job of these runs is queued or running"
    )
    return not left


def _below(named: Sequence[Path], folders: Sequence[RunFolder]) -> tuple[list[RunFolder], list[str]]:
    """Return the runs that lie below the named paths, and a message for each sweep that only a link led to.

    The user did not name such a sweep, so it may belong to somebody else.
    """
    roots = [path.resolve() for path in named]
    there = [folder for folder in folders if any(folder.path.resolve().is_relative_to(root) for root in roots)]
    elsewhere = dict.fromkeys(folder.path.resolve().parent for folder in folders if folder not in there)
    return there, [
        f"a link leads to {sweep}; if it is yours, llmexp cancel {sweep} ends its jobs" for sweep in elsewhere
    ]


def _not_own(run: Submitted) -> str:
    return (
        f"job {run.job} keeps running: SLURM says that it does not belong to {run.folder.path.parent}; scancel "
        f"{run.job} would end it"
    )


def _is_kept(plan: RunPlan, folder: RunFolder) -> bool:
    """Say whether the folder has the answer; a result that another version wrote is kept too, with a message.

    The stack is compared with the device that the result names, because this machine has another one.
    """
    try:
        earlier = folder.result()
    except DamagedError:
        print(f"{folder.path.name}: again, {LOST_RESULT}", flush=True)
        with only_attempt(folder):
            set_aside(folder)
        return False
    except RecordError as error:
        print(f"llmexp: {error}", file=sys.stderr)
        return True
    if earlier is None:
        return False
    device = recorded_device_model(earlier.environment, plan.config.hardware.device)
    again = why_again(plan, folder, earlier, stack_digest(plan, device))
    said = f"{earlier.status} already, {earlier.ended_at}; rerun=all measures again"
    print(
        f"{folder.path.name}: {f'again, {again}' if again else said + restored_plan(plan, folder, earlier)}", flush=True
    )
    return again is None


def _is_skipped(plan: RunPlan, folder: RunFolder) -> bool:
    """Say whether the run is certain to be skipped, so that it needs no job; its result then gives the reason."""
    why = certain_skip(plan) or missing_model(plan)
    if why:
        skip(plan, folder, why)
        print(f"{folder.path.name}: skipped: {why}", flush=True)
    return why is not None


def _announce(submitted: Sequence[Submitted], queued: Sequence[Submitted]) -> None:
    if queued:
        print(f"{len(queued)} under way already: job {', '.join(str(run.job) for run in queued)}")
    if submitted:
        arrays = dict.fromkeys(run.job.array for run in submitted)
        print(f"{len(submitted)} submitted: job {', '.join(arrays)}", flush=True)
    if runs := [*queued, *submitted]:
        sweep = runs[0].folder.path.parent
        print(f"llmexp status {sweep}, llmexp logs RUN and llmexp cancel {sweep} work from any shell", flush=True)


def _answers(planned: Sequence[tuple[RunPlan, RunFolder]], ended: Sequence[Followed]) -> list[bool]:
    """Return one answer for each plan.

    Runs that SLURM ended are recorded here, because their own process no longer could.
    """
    by_name = {run.submitted.folder.path.name: run for run in ended}
    found = []
    for plan, folder in planned:
        run = by_name.get(folder.path.name)
        if run is None or run.settled_here:
            record(plan, folder)
        found.append(run is None or run.has_answered)
    return found
