"""Why a run is not started although its sweep goes on: for programs a code, for people the reason."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from llmexp.record.samples import Record


class SkipCode(StrEnum):
    """The kinds of reasons."""

    UNSUPPORTED = "unsupported"
    RANKS = "ranks"
    LAUNCHER = "launcher"
    MEMORY = "memory"
    PREDICTED = "predicted"
    SOFTWARE = "software"
    SOURCE = "source"


class Skip(Record):
    """A skip: nothing is started, and the run has its answer."""

    code: SkipCode = Field(
        description=(
            "unsupported: the engine, or a setting, cannot do it; ranks: more than the hardware has; launcher: it does "
            "not start such ranks; memory: certainly more than there is; predicted: a smaller run ran out of memory; "
            "software: a server or a compiler is missing here; source: the run that it starts from left no model"
        )
    )
    reason: str

    @model_validator(mode="before")
    @classmethod
    def _of_words(cls, found: Any) -> Any:
        """Read the reason alone, which plans of schema 1 and 2 have."""
        return {"code": SkipCode.UNSUPPORTED, "reason": found} if isinstance(found, str) else found

    def __str__(self) -> str:
        return self.reason
