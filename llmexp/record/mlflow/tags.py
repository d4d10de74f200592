"""A run's tags and status in MLflow, and the names of the tags by which runs are found again."""

from __future__ import annotations

from llmexp.record.result import RunStatus
from llmexp.record.trackers.content import RunContent

# People may edit the plain tags beside these.
RUN_TAG, SWEEP_TAG, STATUS_TAG, DIGEST_TAG, KIND_TAG, ATTEMPT_TAG = (
    "llmexp.run",
    "llmexp.sweep",
    "llmexp.status",
    "llmexp.digest",
    "llmexp.kind",
    "llmexp.attempt",
)
# Tags that MLflow itself reads.
PARENT_TAG, COMMIT_TAG = "mlflow.parentRunId", "mlflow.source.git.commit"
NOTE_TAG = "mlflow.note.content"
SOURCE = {"mlflow.source.name": "llmexp", "mlflow.source.type": "LOCAL"}
_FINISHED = (RunStatus.SUCCESS, RunStatus.OOM, RunStatus.SKIPPED)


def tags_of(content: RunContent) -> dict[str, str]:
    """Return the tags: the run in words, those by which it is found again, and those that MLflow shows on its page."""
    bookkeeping = {RUN_TAG: content.id, SWEEP_TAG: content.sweep, STATUS_TAG: content.state, KIND_TAG: "run"}
    commit = {COMMIT_TAG: content.commit} if content.commit else {}
    return content.tags | bookkeeping | SOURCE | commit


def status_of(content: RunContent) -> str:
    """Return MLflow's status: FINISHED where the run gave an answer; the status tag says which one."""
    if content.state in _FINISHED:
        return "FINISHED"
    return "KILLED" if content.state == RunStatus.KILLED else "FAILED"
