"""All that one engine could be set to for a plan's loads, predicted one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from llmexp.serving.advice.cards import fewest_copies, is_kept, is_rated
from llmexp.serving.advice.front import WORTH, front
from llmexp.serving.advice.open_keys import DP, TP, copies_are_open, devices_of, layouts, limits
from llmexp.serving.advice.trials import ServedTrial, tried
from llmexp.serving.engine import ServingEngine
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.prediction import request_of, server_of

# Servers' own limits are multiples of this.
_ROUND = 64


@dataclass(frozen=True)
class ServingSpace:
    """A plan of an engine, and the keys that are given."""

    base: ServingPlan
    engine: ServingEngine
    fixed: Collection[str]

    def choices(self) -> list[ServedTrial]:
        """Return the trials that somebody might choose: of rates those on few cards first, else the fastest."""
        return sorted(front(self._trials(), self.gain), key=self._order)

    def words(self, trial: ServedTrial) -> dict[str, str]:
        """Return what a command line says of a trial besides the base's own layout."""
        layout = self.base.config.parallelism
        own = {TP: layout.tp, DP: layout.dp}
        return {key: str(value) for key, value in trial.settings.items() if own.get(key) != value}

    def _order(self, trial: ServedTrial) -> tuple[float, float]:
        fast = -self.gain(trial)
        return (trial.devices, fast) if is_rated(self.base) else (fast, trial.devices)

    def _trials(self) -> Iterator[ServedTrial]:
        """Yield the trials that fit and keep serve.slo, each with the limits that suit it."""
        for one in self.fitting():
            for copies in self._copies(one):
                trial = tried(self.base, {**one.settings, DP: copies}) if copies else one
                if trial and is_kept(best := self._with_limits(trial)):
                    yield best

    def fitting(self) -> Iterator[ServedTrial]:
        """Yield each layout of one copy whose weights leave room for a cache."""
        found = (tried(self.base, settings) for settings in layouts(self.base, self.engine, self.fixed))
        yield from (trial for trial in found if trial)

    def gain(self, trial: ServedTrial) -> float:
        """Return what is more the better: tokens/s, or with rates alone how soon a token follows another."""
        return 1 / (trial.tpot_s or 1.0) if is_rated(self.base) else trial.predicted.rate

    def _copies(self, trial: ServedTrial) -> set[int | None]:
        """Return the numbers of copies that are worth a trial; None leaves the base's."""
        if not copies_are_open(self.engine, self.fixed):
            return {None}
        most = devices_of(self.base) // trial.plan.config.parallelism.tp
        if is_rated(self.base):
            found = (fewest_copies(trial.plan, most, surely=surely) for surely in (False, True))
            return {copies for copies in found if copies}
        return {1, most}

    def _with_limits(self, trial: ServedTrial) -> ServedTrial:
        """Return the trial with limits that make it keep serve.slo, or faster by what is worth a setting."""
        best, is_timed = trial, self.base.config.serve.slo.tpot_s is not None
        for limit in limits(self.engine, self.fixed, _room(trial.plan), is_timed=is_timed):
            other = tried(self.base, {**best.settings, **limit})
            if other and is_kept(other) and self._is_better(other, best):
                best = other
        return best

    def _is_better(self, one: ServedTrial, other: ServedTrial) -> bool:
        return not is_kept(other) or self.gain(one) > (1 + WORTH) * self.gain(other)


def _room(plan: ServingPlan) -> int:
    """Return how many requests one copy's cache has room for, as far as so many are sent."""
    server, load = server_of(plan), request_of(plan)
    room = int(server.limits.cache_bytes / server.held.cache_bytes(load.prompt + load.output))
    sent = max((point.at_work for point in plan.points), default=room) // plan.config.parallelism.dp
    most = min(room, max(sent, 1))
    return most - most % _ROUND if most > _ROUND else most
