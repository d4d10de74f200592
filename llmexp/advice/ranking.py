"""The ranking of options by a goal: what fits for sure, what would be better if it fits, and what comes nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.advice.goal import Goal
from llmexp.advice.option import Option

# Values nearer than this are the same: the predictions of two such options differ by rounding.
SAME = 0.005
# Of pairs of runs that were predicted further apart than this, 90 % were measured in that order.
APART = 1.15


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
        """The first options that predictions cannot tell apart from the best one, the best one first."""
        ordered = [*self.sure] or [*self.perhaps]
        best = self.goal.value(ordered[0]) if ordered else 0.0
        return [option for option in ordered if self.goal.value(option) * APART >= best]


def ranked(options: Sequence[Option], goal: Goal) -> Ranking:
    """Rank options by a goal, without those that another one makes useless."""
    by_verdict = {
        verdict: sorted((one for one in options if one.verdict == verdict), key=lambda one: _key(one, goal))
        for verdict in ("yes", "uncertain", "no")
    }
    sure = _useful(by_verdict["yes"], goal)
    best = goal.value(sure[0]) if sure else 0.0
    better = [one for one in by_verdict["uncertain"] if not sure or goal.value(one) > best * (1 + SAME)]
    misfits = sorted(by_verdict["no"], key=lambda one: -one.free_share)
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
