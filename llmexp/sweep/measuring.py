"""Measure one planned run unless its folder has the answer, draw it, and copy it to its tracker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.sweep.resume import is_anothers, restored_plan, why_run
from llmexp.tasks import get_task


def joined(plan: RunPlan) -> bool:
    """Say whether this is a further machine of the run; everything that the first machine asked for is then done."""
    from llmexp.launch.nodes.join import join
    from llmexp.launch.nodes.place import place_of

    place = place_of(plan.config)
    if place.node:
        join(place, folder_of(plan).path.parent)
    return place.node > 0


def measure(plan: RunPlan, folder: RunFolder, began: str | None = None) -> bool:
    """Run a plan unless its folder has the answer; the tracker has the folder afterwards.

    Returns False where another driver holds the run.

    Raises RecordError where the folder cannot be read or written: the disk is full, read-only or gone.
    """
    try:
        return _measure(plan, folder, began)
    except OSError as error:
        raise RecordError(f"{folder.path.name}: {error}; the same command goes on with it") from error


def _measure(plan: RunPlan, folder: RunFolder, began: str | None) -> bool:
    from llmexp.launch.attempt import RunHeldError
    from llmexp.launch.stack import stack_digest

    stack = stack_digest(plan)

    def wanted() -> bool:
        why = why_run(plan, folder, stack, began)
        if why:
            print(f"{folder.path.name}: again, {why}", flush=True)
        return why is not None

    if why_run(plan, folder, stack, began) is not None:
        try:
            foretold = plan.skip or get_task(plan.config.task.name).foretold(plan, folder.path.parent, stack)
            return remeasure(plan.model_copy(update={"skip": foretold}), folder, wanted) or _keep(plan, folder, began)
        except RunHeldError as held:
            print(f"{folder.path.name}: {held}", flush=True)
            return False
    return _keep(plan, folder, began)


def remeasure(plan: RunPlan, folder: RunFolder, wanted: Callable[[], bool] = lambda: True) -> bool:
    """Run a plan whatever its folder holds, draw it and copy it to the tracker.

    `wanted` is asked once this process holds the folder; False where it says no.
    """
    from llmexp.launch.run import run_one
    from llmexp.report.plots import can_draw, draw_run

    if run_one(plan, folder, wanted) is None:
        return False
    if can_draw():
        with suppress(RecordError, OSError, ValueError):  # a picture must not cost the tracker's copy
            draw_run(folder)
    record(plan, folder)
    return True


def _keep(plan: RunPlan, folder: RunFolder, began: str | None) -> bool:
    """Say that the result is kept, and why."""
    result = folder.result()
    if result:
        why = (
            "by another driver of this sweep"
            if is_anothers(result, began)
            else f"stack {result.stack}; rerun=all measures again"
        )
        print(
            f"{folder.path.name}: {result.status} already, {result.ended_at}, {why}"
            f"{restored_plan(plan, folder, result)}",
            flush=True,
        )
    record(plan, folder)
    return True


def record(plan: RunPlan, folder: RunFolder) -> None:
    """Copy a run to its tracker; what is already there does not change."""
    if plan.config.tracking.name == "mlflow":
        from llmexp.record.mlflow import record_runs

        record_runs([folder], plan.config.tracking)


def folder_of(plan: RunPlan) -> RunFolder:
    """Return the run's folder, which lies below the sweep's."""
    return RunFolder(plan.folder)
