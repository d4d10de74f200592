"""Why a run is done, or not done again."""

from __future__ import annotations

from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult, RunStatus
from llmexp.schema import RunConfig


def why_run(plan: RunPlan, folder: RunFolder, stack: str, began: str | None) -> str | None:
    """Say why a run is done: '' the first time, else a reason; None where its result stands, or another driver's since `began` (ISO 8601)."""
    earlier = folder.result()
    if earlier is None:
        return "it was interrupted before its result was written" if folder.state() == RunStatus.KILLED else ""
    return None if is_anothers(earlier, began) else why_again(plan.config, earlier, stack)


def is_anothers(earlier: RunResult, began: str | None) -> bool:
    """Whether another driver measured this since `began`, so that nobody need do it twice; a killed run is nobody's result."""
    return began is not None and earlier.ended_at >= began and earlier.status is not RunStatus.KILLED


def why_again(config: RunConfig, earlier: RunResult, stack: str) -> str | None:
    """Say why the run is measured again although it has a result, or None to keep that; `stack` is the digest of what would run it now."""
    if config.rerun == "all":
        return "rerun=all"
    if earlier.status is RunStatus.SKIPPED and config.force:
        return "it was skipped, and force=true"
    if config.rerun == "none":
        return None
    if not earlier.status.is_answer:
        return f"it ended {earlier.status}"
    if config.rerun == "stale" and earlier.stack != stack:
        return f"libraries, device or llmexp's own code have changed since: its stack is {earlier.stack}, now it is {stack}"
    return None
