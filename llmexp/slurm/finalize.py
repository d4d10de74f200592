"""Write results for runs that could not write their own: SLURM killed the job, or its node failed."""

from __future__ import annotations

from llmexp.errors import RecordError
from llmexp.launch.attempt import only_attempt, set_aside
from llmexp.launch.collect import conclude
from llmexp.launch.ending import Ending, skipped
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.skip import Skip
from llmexp.slurm.jobs import Submitted
from llmexp.slurm.queue import FORGOTTEN, JobState

# SLURM's states and the status that each means; any other state is a kill.
STATUS = {
    "OUT_OF_MEMORY": RunStatus.OOM,
    "TIMEOUT": RunStatus.TIMEOUT,
    "FAILED": RunStatus.FAILED,
    "COMPLETED": RunStatus.FAILED,
}


def is_final(submitted: Submitted, state: JobState | None) -> bool:
    """Say whether the run's result is final.

    An answer always is; any other result is final only once SLURM will not run the job again.
    """
    result = submitted.new_result()
    return result is not None and (result.status.is_answer or (state is not None and state.has_ended))


def finalize(submitted: Submitted, state: JobState) -> RunResult | None:
    """Write the result that an ended job could not write.

    Returns None where the job never reached the run; its earlier result then stays.

    Raises RecordError where the run still goes on, on a node that SLURM has lost.
    """
    with only_attempt(submitted.folder, ended_job=submitted.job.number):
        if submitted.folder.result():
            return submitted.new_result()
        plan = RunPlan.read(submitted.folder.plan_path)
        return conclude(
            plan, submitted.folder, Ending(STATUS.get(state.name, RunStatus.KILLED), _reason(submitted, state)), {}
        )


def finalize_ended(submitted: Submitted, state: JobState) -> bool:
    """Settle a run whose job has ended; return False where the run seems to go on or its folder cannot be written."""
    try:
        finalize(submitted, state)
    except (RecordError, OSError):
        return False
    return True


def skip(plan: RunPlan, folder: RunFolder, why: Skip) -> None:
    """Write the result of a run that any node would skip, so that it needs no job.

    Raises RunHeldError where another driver holds the run.
    """
    with only_attempt(folder):
        set_aside(folder)
        folder.write(folder.plan_path, plan)
        conclude(plan, folder, skipped(why), {})


def _reason(submitted: Submitted, state: JobState) -> str:
    job = f"SLURM's job {submitted.job}"
    where = f" on {state.nodes}" if state.nodes else ""
    began = any(event["status"] == "running" for event in submitted.folder.events())
    before = "" if began else " before the run began"
    if state.is_hopeless:
        return f"{job} would wait forever: {state.reason}"
    if state.name == FORGOTTEN:
        return f"{job} is gone, SLURM has no record of how it ended, and it left no result"
    return (
        f"{job} ended {state.name}{where}{before}"
        f"{_last_words(submitted) if state.name in ('FAILED', 'COMPLETED') else ''}"
    )


def _last_words(submitted: Submitted) -> str:
    try:
        lines = submitted.log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return f", and there is no {submitted.log}"
    return f": {lines[-1]}" if lines else ""
