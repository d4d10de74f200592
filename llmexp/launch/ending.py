"""How a run ended, and why: the part of its result that is decided here."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.record.result import RankFailure, RunStatus


@dataclass(frozen=True)
class Ending:
    """A status, the reason in one line (of a success only where its loss diverged), and the rank's own account of its failure."""

    status: RunStatus
    reason: str = ""
    failure: RankFailure | None = None


SUCCESS = Ending(RunStatus.SUCCESS)
