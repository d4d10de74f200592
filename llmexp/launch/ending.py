"""The ending of a run and its reason: the part of its result that the driver decides."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.samples import RankFailure
from llmexp.record.skip import Skip, SkipCode
from llmexp.registry import get_task


@dataclass(frozen=True)
class Ending:
    """A status, its reason in one line, and the failed rank's own report.

    A success has a reason only where its loss diverged.
    """

    status: RunStatus
    reason: str = ""
    failure: RankFailure | None = None
    skip: SkipCode | None = None


SUCCESS = Ending(RunStatus.SUCCESS)


def skipped(skip: Skip) -> Ending:
    """Return the ending of a run that is skipped."""
    return Ending(RunStatus.SKIPPED, skip.reason, skip=skip.code)


def in_words(plan: RunPlan, folder: RunFolder, result: RunResult) -> str:
    """Describe the status and its reason; for a success also its outcome and the folders that it saved."""
    parts = [f"{result.status}: {result.reason}" if result.reason else f"{result.status}"]
    parts += filter(None, [get_task(plan.config.task.name).outcome(plan, result.metrics)])
    parts += [f"{name.rpartition('/')[2]} in {folder.path / name}" for name in result.what_ran.get("saved", ())]
    return " · ".join(parts)
