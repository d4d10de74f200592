"""How a run ended, and why: the part of its result that is decided here."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.samples import RankFailure
from llmexp.tasks import get_task


@dataclass(frozen=True)
class Ending:
    """A status, the reason in one line (of a success only where its loss diverged), and the rank's own account of its failure."""

    status: RunStatus
    reason: str = ""
    failure: RankFailure | None = None


SUCCESS = Ending(RunStatus.SUCCESS)


def in_words(plan: RunPlan, folder: RunFolder, result: RunResult) -> str:
    """The status and its reason; of a success what came out, and the folders that it left."""
    parts = [f"{result.status}: {result.reason}" if result.reason else f"{result.status}"]
    parts += filter(None, [get_task(plan.config.task.name).outcome(plan, result.metrics)])
    parts += [f"{name.rpartition('/')[2]} in {folder.path / name}" for name in result.what_ran.get("saved", ())]
    return " · ".join(parts)
