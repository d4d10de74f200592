"""What somebody wants most of a configuration."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.advice.option import Option
from llmexp.errors import ConfigError, unknown
from llmexp.report.training_budget import TrainingBudget

GOALS = {
    "tokens_per_s": "the most tokens/s of all devices",
    "tokens_per_usd": "the most tokens for the money",
    "time": "the soonest end of the training that --for says",
    "fits": "the least of the devices' memory",
}
DEFAULT = "tokens_per_s"


@dataclass(frozen=True)
class Goal:
    """A goal, and the training that it is for, if one is stated."""

    name: str
    training: TrainingBudget | None = None

    def value(self, option: Option) -> float:
        """Return what grows as an option serves the goal better; all values of a goal have one unit."""
        if self.name == "tokens_per_usd":
            return option.tokens_per_usd or 0.0
        if self.name == "fits":
            return option.free_share
        return option.rate

    @property
    def words(self) -> str:
        """The goal in words."""
        return GOALS[self.name]


def read_goal(name: str, training: TrainingBudget | None) -> Goal:
    """Return the goal of this name; raises ConfigError for an unknown one, or where the training is not stated."""
    if name not in GOALS:
        raise unknown("goal", name, GOALS)
    if name == "time" and training is None:
        raise ConfigError("goal=time: say of which training, as in --for tokens=1e9")
    return Goal(name, training)
