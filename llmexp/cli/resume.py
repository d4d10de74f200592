"""Whether an earlier result of the same run is kept."""

from __future__ import annotations

from llmexp.record.result import RunResult, RunStatus
from llmexp.schema import RunConfig


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
        return "libraries, device or llmexp's own code have changed since"
    return None
