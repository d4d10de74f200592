"""What a search is asked for, and what is known of its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import isfinite
from typing import Literal, get_args

from llmexp.errors import ConfigError, unknown
from llmexp.record.installed import installs
from llmexp.record.result import Metric, RunResult, RunStatus
from llmexp.sweep.search.space import SearchPoint

Direction = Literal["minimize", "maximize"]
SamplerName = Literal["tpe", "random"]
PrunerName = Literal["median", "hyperband", "none"]
# How a trial stands; one that died lost its driver, and its point is tried again.
TrialStanding = Literal["complete", "pruned", "diverged", "oom", "failed", "died", "running", "waiting"]

# The word for the loss at the end: of these metrics the first that a run has.
LOSS, LOSSES = "loss", ("smoothed_final_loss", "final_loss")


@dataclass(frozen=True)
class SearchGoal:
    """The metric that is sought, and the direction that is better."""

    metric: str
    direction: Direction

    @property
    def is_lower_loss(self) -> bool:
        """Tell whether the steps of a run show how it does, long before its end."""
        return self.direction == "minimize" and self.metric in (LOSS, *LOSSES)

    def value(self, metrics: Mapping[str, Metric | None]) -> float | None:
        """Return the value of a run's metrics; None where the run lacks it."""
        names = LOSSES if self.metric == LOSS else (self.metric,)
        found = next((metric for name in names if (metric := metrics.get(name))), None)
        return None if found is None else found.mean

    def check(self, metrics: Sequence[str], task: str) -> None:
        """Raise ConfigError where no run of the task has the metric."""
        known = [*metrics, *[LOSS] * (LOSSES[-1] in metrics)]
        if self.metric not in known:
            raise unknown(f"metric of task={task}", self.metric, known)


@dataclass(frozen=True)
class SearchOptions:
    """How a search is done: how many trials, who chooses their points from which seed, and who ends them early.

    A pruner of None is chosen by the goal.
    """

    trials: int = 20
    sampler: SamplerName = "tpe"
    pruner: PrunerName | None = None
    seed: int = 0

    def check(self, goal: SearchGoal) -> None:
        """Raise ConfigError, before anything starts, for options that cannot be."""
        if not find_spec("optuna"):
            raise ConfigError(f"a search needs Optuna: {installs('search')}")
        if self.trials < 1:
            raise ConfigError(f"trials is {self.trials}: a search has at least 1")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}: write a whole number of at least 0")
        for what, value, kind in (("sampler", self.sampler, SamplerName), ("pruner", self.pruner, PrunerName)):
            if value is not None and value not in get_args(kind):
                raise unknown(what, str(value), get_args(kind))
        if self.pruner not in (None, "none") and not goal.is_lower_loss:
            raise ConfigError(
                f"pruner={self.pruner} goes by the loss of a run's steps, and what is sought is to {goal.direction} "
                f"{goal.metric}: leave it out"
            )

    def pruner_for(self, goal: SearchGoal) -> PrunerName:
        """Return who ends trials early."""
        return self.pruner or ("median" if goal.is_lower_loss else "none")


@dataclass(frozen=True)
class AskedTrial:
    """A trial that this driver has to measure."""

    number: int
    point: SearchPoint


@dataclass(frozen=True)
class TrialEnd:
    """How a trial ended; `value` is that of the goal's metric, of a complete one."""

    standing: TrialStanding
    value: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class SearchTrial:
    """A trial as the journal knows it; `words` start its run, whose folder is `run`."""

    number: int
    standing: TrialStanding
    point: SearchPoint
    value: float | None = None
    reason: str = ""
    run: str = ""
    words: Sequence[str] = field(default=())


def best_first(trials: Sequence[SearchTrial], goal: SearchGoal) -> list[SearchTrial]:
    """Return the trials with the best one first; those without a value follow in the order of their numbers."""
    sign = 1 if goal.direction == "minimize" else -1

    def place(trial: SearchTrial) -> tuple[bool, float, int]:
        known = trial.standing == "complete" and trial.value is not None
        return not known, sign * (trial.value or 0.0) if known else 0.0, trial.number

    return sorted(trials, key=place)


def end_of(result: RunResult | None, goal: SearchGoal, pruned: str) -> TrialEnd:
    """Return how the trial of a run ended; `pruned` is the reason for which this driver ended it early."""
    if result is None:
        return TrialEnd("failed", reason="it left no result")
    if pruned and result.status is RunStatus.KILLED:
        return TrialEnd("pruned", reason=pruned)
    if result.status is RunStatus.OOM:
        return TrialEnd("oom", reason=result.reason)
    if result.status is not RunStatus.SUCCESS:
        return TrialEnd("failed", reason=f"{result.status}: {result.reason}")
    value = goal.value(result.metrics)
    if value is None:
        return TrialEnd("failed", reason=f"its result has no {goal.metric}")
    return TrialEnd("complete", value) if isfinite(value) else TrialEnd("diverged", reason=result.reason)
