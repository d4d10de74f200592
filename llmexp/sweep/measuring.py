"""Measure one planned run unless its folder has the answer, draw it, and copy it to its trackers."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from llmexp.errors import LlmexpError, RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.skip import Skip, SkipCode
from llmexp.registry import get_task
from llmexp.sweep.resume import is_anothers, restored_plan, why_run


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
    from llmexp.launch.attempt import RunHeldError

    try:
        with records_named(folder):
            if is_answered(plan, folder, began):
                return keep(plan, folder, began)
            wanted = partial(is_wanted, plan, folder, began)
            return remeasure(with_predicted_skip(plan, folder), folder, wanted) or keep(plan, folder, began)
    except RunHeldError as held:
        print(f"{folder.path.name}: {held}", flush=True)
        return False


@contextmanager
def records_named(folder: RunFolder) -> Iterator[None]:
    """Raise RecordError, which names the run and says what to do, where the disk is full, read-only or gone.

    An interrupt whose result could not be written stays an interrupt.
    """
    try:
        yield
    except (OSError, LlmexpError) as error:
        if interrupt := _interrupt_before(error):
            raise interrupt from None
        if isinstance(error, LlmexpError):
            raise
        raise RecordError(f"{folder.path.name}: {error}; the same command resumes it") from error


def _interrupt_before(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt during whose handling an error was raised."""
    before = error.__context__
    if before is None or isinstance(before, KeyboardInterrupt):
        return before
    return _interrupt_before(before)


def attempted(work: Callable[[], bool]) -> bool | None:
    """Do the work of one run and say whether it met no error; None where another driver holds the run.

    An error is printed at once.
    """
    try:
        return work() or None
    except LlmexpError as error:
        print(f"llmexp: {error}", file=sys.stderr)
    except Exception:  # the sweep's edge
        traceback.print_exc()
    return False


def is_answered(plan: RunPlan, folder: RunFolder, began: str | None) -> bool:
    """Say whether the folder has the answer."""
    return why_run(plan, folder, _stack(plan), began) is None


def is_wanted(plan: RunPlan, folder: RunFolder, began: str | None) -> bool:
    """Say whether the run has to be measured, and print why it is measured again."""
    why = why_run(plan, folder, _stack(plan), began)
    if why:
        print(f"{folder.path.name}: again, {why}", flush=True)
    return why is not None


def with_predicted_skip(plan: RunPlan, folder: RunFolder) -> RunPlan:
    """Return the plan, to be skipped where earlier runs of the sweep say how it is certain to end."""
    if plan.skip:
        return plan
    reason = get_task(plan.config.task.name).predicted_outcome(plan, folder.path.parent, _stack(plan))
    return plan.model_copy(update={"skip": Skip(code=SkipCode.PREDICTED, reason=reason)}) if reason else plan


def _stack(plan: RunPlan) -> str:
    from llmexp.launch.stack import stack_digest

    return stack_digest(plan)


def remeasure(plan: RunPlan, folder: RunFolder, wanted: Callable[[], bool] = lambda: True) -> bool:
    """Run a plan whatever its folder holds, draw it and copy it to the trackers.

    `wanted` is asked once this process holds the folder; False where it says no.
    """
    from llmexp.launch.run import run_one
    from llmexp.record.mlflow import followed

    with followed(plan, folder):
        ended = run_one(plan, folder, wanted)
    if ended is None:
        return False
    draw_and_record(plan, folder)
    return True


def draw_and_record(plan: RunPlan, folder: RunFolder) -> None:
    """Draw a run that has ended, and copy it to its trackers."""
    from llmexp.report.plots import can_draw, draw_run

    if can_draw():
        with suppress(RecordError, OSError, ValueError):  # a picture must not cost the tracker's copy
            draw_run(folder)
    record(plan, folder)


def keep(plan: RunPlan, folder: RunFolder, began: str | None) -> bool:
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
    """Copy a run to its trackers; what is already there does not change."""
    if plan.config.tracking.name == "mlflow":
        from llmexp.record.mlflow import record_runs

        record_runs([folder], plan.config.tracking)
    if plan.config.tracking.also:
        from llmexp.record.trackers import record_also

        record_also([folder], plan.config.tracking)


def folder_of(plan: RunPlan) -> RunFolder:
    """Return the run's folder, which lies below the sweep's."""
    return RunFolder(plan.folder)
