"""A measured run: its folder, its plan and its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import Metric, RunResult, RunStatus


@dataclass(frozen=True)
class MeasuredRun:
    """What `llmexp.run` returns of one run; `result` is None where the run has not ended here.

    That is so of a run that a budget left out, that went to a cluster, or whose folder could not be written.
    """

    folder: Path
    plan: RunPlan
    result: RunResult | None

    @property
    def is_answered(self) -> bool:
        """Tell whether the run has an answer: success, out of memory, or skipped with a reason."""
        return self.result is not None and self.result.status.is_answer

    @property
    def rate(self) -> Metric | None:
        """The metric that says how fast the run was, such as tokens_per_s; None unless it was a success."""
        done = self.result is not None and self.result.status is RunStatus.SUCCESS
        return self.result.metrics.get(self.plan.rate) if self.result and done else None


def measured_run(plan: RunPlan) -> MeasuredRun:
    """Read what a plan's folder holds now."""
    folder = RunFolder(plan.folder)
    try:
        return MeasuredRun(folder.path, plan, folder.result())
    except RecordError:
        return MeasuredRun(folder.path, plan, None)
