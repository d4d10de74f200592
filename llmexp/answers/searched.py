"""The trials of a search."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from llmexp.answers.versioned import Answer, SchemaName
from llmexp.sweep.search.searching import Searched
from llmexp.sweep.search.trial import SearchTrial, TrialStanding
from llmexp.version import __version__


class SearchSchema(SchemaName):
    """The schema of this answer."""

    name: Literal["llmexp.search"] = "llmexp.search"
    version: Literal[1] = 1


class TrialSearched(Answer):
    """One line of what `llmexp search --json` prints: a trial; the best one is first."""

    schema_name: SearchSchema = Field(SearchSchema(), alias="schema")
    written_by: str = Field(__version__, description="llmexp's version")
    number: int = Field(description="of the trial, from 0, in the order in which points were chosen")
    state: TrialStanding = Field(description="a trial that died lost its driver, and its point is tried again")
    metric: str
    direction: Literal["minimize", "maximize"]
    value: float | None = Field(description="of the metric; only of a complete trial")
    point: dict[str, str] = Field(description="the value of each key, as a person types it")
    reason: str = Field(description="why it is not complete; empty for others")
    folder: str = Field(description="of its run; empty where none was begun")
    words: list[str] = Field(description="after `llmexp`, what starts its run")


def trials_searched(found: Searched) -> list[TrialSearched]:
    """Return the answer about each trial."""
    return [_trial(trial, found) for trial in found.trials]


def _trial(trial: SearchTrial, found: Searched) -> TrialSearched:
    return TrialSearched(
        number=trial.number,
        state=trial.standing,
        metric=found.goal.metric,
        direction=found.goal.direction,
        value=trial.value,
        point=dict(trial.point),
        reason=trial.reason,
        folder=str(found.folder / trial.run) if trial.run else "",
        words=list(trial.words),
    )
