"""How a run ended, and why: the part of its result that is decided here."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder
from llmexp.record.result import RankFailure, RunResult, RunStatus


@dataclass(frozen=True)
class Ending:
    """A status, the reason in one line (of a success only where its loss diverged), and the rank's own account of its failure."""

    status: RunStatus
    reason: str = ""
    failure: RankFailure | None = None


SUCCESS = Ending(RunStatus.SUCCESS)


def in_words(plan: RunPlan, folder: RunFolder, result: RunResult) -> str:
    """The status and its reason; of a success the last step's loss, and the folders of the weights that it left."""
    parts = [f"{result.status}: {result.reason}" if result.reason else f"{result.status}"]
    loss = result.metrics.get("final_loss")
    if loss and isfinite(loss.mean):
        parts.append(f"loss {loss.mean:.4g} after {plan.config.measure.warmup_steps + plan.config.measure.steps} steps")
    parts += [f"{name.rpartition('/')[2]} in {folder.path / name}" for name in result.what_ran.get("saved", ())]
    return " · ".join(parts)
