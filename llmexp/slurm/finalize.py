"""What a job's end means for its run, where the run itself could not say: killed by SLURM, or with its node."""

from __future__ import annotations

from llmexp.errors import RecordError
from llmexp.launch.attempt import only_attempt, set_aside
from llmexp.launch.collect import conclude
from llmexp.launch.ending import Ending
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult, RunStatus
from llmexp.slurm.jobs import Submitted
from llmexp.slurm.queue import FORGOTTEN, JobState

# What SLURM's words mean; any other is a kill.
STATUS = {
    "OUT_OF_MEMORY": RunStatus.OOM,
    "TIMEOUT": RunStatus.TIMEOUT,
    "FAILED": RunStatus.FAILED,
    "COMPLETED": RunStatus.FAILED,
}


def is_final(submitted: Submitted, state: JobState | None) -> bool:
    """Whether the run's result stands: an answer does; anything else only once SLURM will not run the job again."""
    result = submitted.new_result()
    return result is not None and (result.status.is_answer or (state is not None and state.has_ended))


def finalize(submitted: Submitted, state: JobState) -> RunResult | None:
    """Write the result that an ended job could not; None where the job never came to the run, whose earlier result then stays.

    Raises RecordError where the run goes on all the same, on a node that SLURM has lost.
    """
    with only_attempt(submitted.folder, ended_job=submitted.job.number):
        if submitted.folder.result():
            return submitted.new_result()
        plan = RunPlan.read(submitted.folder.plan_path)
        return conclude(
            plan, submitted.folder, Ending(STATUS.get(state.name, RunStatus.KILLED), _reason(submitted, state)), {}
        )


def finalize_ended(submitted: Submitted, state: JobState) -> bool:
    """Settle a run whose job has ended; False where it seems to go on, or its folder cannot be written."""
    try:
        finalize(submitted, state)
    except (RecordError, OSError):
        return False
    return True


def skip(plan: RunPlan, folder: RunFolder, reason: str) -> None:
    """Write the result of a run that would be skipped on any node, so that it waits for none; raises RunHeldError where another driver is at it."""
    with only_attempt(folder):
        set_aside(folder)
        folder.write(folder.plan_path, plan)
        conclude(plan, folder, Ending(RunStatus.SKIPPED, reason), {})


def _reason(submitted: Submitted, state: JobState) -> str:
    job = f"SLURM's job {submitted.job}"
    where = f" on {state.nodes}" if state.nodes else ""
    began = any(event["status"] == "running" for event in submitted.folder.events())
    before = "" if began else " before the run began"
    if state.is_hopeless:
        return f"{job} would wait for ever: {state.reason}"
    if state.name == FORGOTTEN:
        return f"{job} is gone, SLURM keeps no record of its end, and it left no result"
    return f"{job} ended {state.name}{where}{before}{_last_words(submitted) if state.name in ('FAILED', 'COMPLETED') else ''}"


def _last_words(submitted: Submitted) -> str:
    try:
        lines = submitted.log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return f", and there is no {submitted.log}"
    return f": {lines[-1]}" if lines else ""
