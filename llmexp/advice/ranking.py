"""The ranking of options by a goal: what fits for sure, what would be better if it fits, and what comes nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.advice.apart import told_apart
from llmexp.advice.goal import Goal
from llmexp.advice.option import Option

# Values nearer than this are the same: the predictions of two such options differ by rounding.
SAME = 0.005


@dataclass(frozen=True)
class Ranking:
    """Options, the best first."""

    goal: Goal
    sure: Sequence[Option]
    perhaps: Sequence[Option]
    """What may not fit, and would be better than every sure one."""
    misfits: Sequence[Option]
    """What does not fit, the nearest first."""

    @property
    def first(self) -> Option | None:
        """The best that fits for sure; where nothing does, the best that may."""
        return next(iter([*self.sure, *self.perhaps]), None)

    @property
    def undecided(self) -> list[Option]:
        """The first one, and then those of which predictions cannot say that they are worse, the most promising first.

        What may not fit is among them. Of memory nothing would be measured.
        """
        best = self.first
        if best is None or self.goal.name == "fits":
            return [best] if best else []
        others = [*self.perhaps, *self.sure]
        return [best, *(one for one in others if one is not best and not self._is_worse(one, best))]

    def deciding(self, count: int) -> list[Option]:
        """Return as many of the undecided ones as are to be measured; none where nothing is left to be decided."""
        undecided = self.undecided
        return [one for one in undecided if not one.measured][:count] if len(undecided) > 1 else []

    def _is_worse(self, option: Option, best: Option) -> bool:
        ratio = self.goal.value(best) / self.goal.value(option)
        return ratio > 1 and told_apart(best, option, ratio)


def ranked(options: Sequence[Option], goal: Goal) -> Ranking:
    """Rank options by a goal, without those that another one makes useless."""
    by_verdict = {
        verdict: sorted((one for one in options if one.verdict == verdict), key=lambda one: _key(one, goal))
        for verdict in ("yes", "uncertain", "no")
    }
    sure = _useful(by_verdict["yes"], goal)
    best = goal.value(sure[0]) if sure else 0.0
    better = [one for one in by_verdict["uncertain"] if not sure or goal.value(one) > best * (1 + SAME)]
    misfits = sorted(by_verdict["no"], key=lambda one: (one.ended_badly, -one.free_share))
    return Ranking(goal, sure, _useful(better, goal), misfits)


def _key(option: Option, goal: Goal) -> tuple[float, int, int]:
    """Order by value; among equals what changes less, and has fewer words."""
    return -goal.value(option), len(option.changes), len(option.plan.overrides)


def _useful(ordered: Sequence[Option], goal: Goal) -> list[Option]:
    """Leave out what another option of the same machine makes useless."""
    return [one for one in ordered if not any(_replaces(other, one, goal) for other in ordered)]


def _replaces(other: Option, option: Option, goal: Goal) -> bool:
    """Tell whether the other one is as good and changes less, or changes the same in fewer words."""
    if other.machine != option.machine or goal.value(other) < goal.value(option) * (1 - SAME):
        return False
    if set(other.changes) == set(option.changes):
        return _key(other, goal)[2] < _key(option, goal)[2] and goal.value(other) <= goal.value(option) * (1 + SAME)
    return set(other.changes) < set(option.changes)
