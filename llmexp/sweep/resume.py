"""Decide why a run is measured, or not measured again, and restore a lost plan.json without measuring."""

from __future__ import annotations

from llmexp.errors import DamagedError, RecordError
from llmexp.launch.source import lost_model, other_source
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan, overrides_of
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.skip import Skip, SkipCode
from llmexp.record.writing import now
from llmexp.registry import get_task

LOST_RESULT = "its result.json is damaged"


def why_run(plan: RunPlan, folder: RunFolder, stack: str, began: str | None) -> str | None:
    """Say why a run is measured: '' the first time, else a reason; None where its result is valid.

    A result that another driver wrote since `began` (ISO 8601) is valid too.
    """
    try:
        earlier = folder.result()
    except DamagedError:
        return LOST_RESULT
    if earlier is None:
        return "it was interrupted before its result was written" if folder.state() == RunStatus.KILLED else ""
    return None if is_anothers(earlier, began) else why_again(plan, folder, earlier, stack)


def is_anothers(earlier: RunResult, began: str | None) -> bool:
    """Say whether another driver measured this run since `began`, so that it need not be measured twice.

    A killed run does not count, nor a result from the future.
    """
    return began is not None and began <= earlier.ended_at <= now() and earlier.status is not RunStatus.KILLED


def why_again(plan: RunPlan, folder: RunFolder, earlier: RunResult, stack: str) -> str | None:
    """Say why a run is measured again although it has a result; None to keep the result.

    `stack` is the digest of what would run it now.
    """
    config = plan.config
    if config.rerun == "all":
        return "rerun=all"
    if earlier.status is RunStatus.SKIPPED and config.force:
        return "it was skipped, and force=true"
    if config.rerun == "none":
        return None
    if not earlier.status.is_answer:
        return f"it ended {earlier.status}"
    if config.rerun == "stale" and earlier.stack != stack:
        return (
            "libraries, device or llmexp's own code have changed since: "
            f"its stack is {earlier.stack}, now it is {stack}"
        )
    if lost := folder.lost_samples(earlier):
        return f"its {lost} is missing"
    return other_source(plan, earlier) or (lost_model(plan, folder) if earlier.status is RunStatus.SUCCESS else None)


def restored_plan(plan: RunPlan, folder: RunFolder, earlier: RunResult) -> str:
    """Write a lost plan.json again beside its result, and say so; '' where nothing was lost.

    One id stands for one plan, except for the command that asked for it and the reason of a skip: the result has both.
    """
    try:
        RunPlan.read(folder.plan_path)
    except DamagedError:
        skip = plan.skip
        if earlier.status is RunStatus.SKIPPED:
            skip = Skip(code=earlier.skip or SkipCode.UNSUPPORTED, reason=earlier.reason)
        known = get_task(plan.config.task.name).as_it_ran(plan, earlier)
        folder.write(
            folder.plan_path, known.model_copy(update={"overrides": overrides_of(earlier.command), "skip": skip})
        )
        return "; its plan.json was missing and was written again"
    except RecordError:  # another version wrote it, and can read it
        pass
    return ""
