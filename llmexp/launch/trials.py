"""Short runs that decide something of a run before it can start, such as its largest batch.

They lie in the run's own folder, as trials/<n>/, and a search that was interrupted goes on from them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.launch.ending import Ending
from llmexp.launch.stack import stack_digest
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult, RunStatus
from llmexp.registry import get_task

# Endings that tell something of the run itself.
_TELLING = (RunStatus.SUCCESS, RunStatus.OOM)


def settle(
    plan: RunPlan, folder: RunFolder, measure: Callable[[RunPlan, RunFolder], object]
) -> tuple[RunPlan, Ending | None]:
    """Measure the trials that the plan still needs, and return the plan that they settle.

    The ending is that of a trial that could not be measured, which the run shares; None where there is none.
    """
    task = get_task(plan.config.task.name)
    while (trial := task.next_trial(plan, found := trials_of(folder))) is not None:
        place = folder.trial(len(found))
        measure(trial, place)
        result = place.result()
        if result is None or result.status not in _TELLING:
            status, reason = (result.status, result.reason) if result else (RunStatus.FAILED, "it left no result")
            return task.settled(plan, found), Ending(status, f"{trial.label}: {reason}")
    return task.settled(plan, found), None


def trials_of(folder: RunFolder) -> list[RunResult]:
    """Return the results of the trials so far, up to the first one that did not tell whether it fits."""
    found = []
    for trial in folder.trials():
        result = trial.result()
        if result is None or result.status not in _TELLING:
            break
        found.append(result)
    return found


def add_trial(folder: RunFolder, result: RunResult) -> None:
    """Keep the run's own result as one more trial: measured for longer, it ended otherwise than its trials."""
    place = folder.trial(len(trials_of(folder)))
    place.write(place.result_path, result)


def is_one_more_trial(plan: RunPlan, folder: RunFolder, result: RunResult) -> bool:
    """Tell whether the run itself ran out of memory where its trials fitted, and there is something smaller to try."""
    if result.status is not RunStatus.OOM:
        return False
    task, found = get_task(plan.config.task.name), trials_of(folder)
    more = [*found, result]
    return task.next_trial(plan, more) is not None or task.settled(plan, more) != task.settled(plan, found)


def spent_trials(plan: RunPlan, folder: RunFolder) -> list[Path]:
    """Return the folder of trials that a new attempt must not go on from; nothing where they were interrupted.

    They have led to an answer, may not hold here and now (other libraries, device or code), or cannot be read.
    """
    if not folder.trials_path.exists():
        return []
    try:
        earlier, trials = folder.result(), trials_of(folder)
    except RecordError:
        return [folder.trials_path]
    answered = earlier is not None and earlier.status.is_answer
    elsewhere = any(trial.stack != stack_digest(plan) for trial in trials)
    return [folder.trials_path] if answered or elsewhere or plan.config.rerun == "all" else []
