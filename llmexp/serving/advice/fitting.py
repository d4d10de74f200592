"""What makes a server fit that does not: the fewest changes of its layout."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.serving.advice.open_keys import TP, Settings, engine_of, layouts
from llmexp.serving.advice.trials import with_settings
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.fit import served_fit

_MOST_CHANGES = 3


def fitting(plan: ServingPlan) -> Sequence[str]:
    """Return changes, each of which makes the plan fit for sure: the least of each key that does, or of several."""
    for count in range(1, _MOST_CHANGES + 1):
        found: dict[tuple[str, ...], str] = {}
        for changed in _changes(plan, count):
            if tuple(changed) not in found and _fits(plan, changed):
                found[tuple(changed)] = " ".join(f"{key}={value}" for key, value in changed.items())
        if found:
            return list(found.values())
    return []


def _changes(plan: ServingPlan, count: int) -> list[Settings]:
    """Return what differs from the plan, of layouts that differ in so many keys; none takes fewer devices."""
    own = plan.config.parallelism.tp
    given = [f"engine.options.{name}" for name in plan.config.engine.options]
    every = [settings for settings in layouts(plan, engine_of(plan), given) if settings[TP] >= own]  # type: ignore[operator]
    changed = [{key: value for key, value in one.items() if (key, value) != (TP, own)} for one in every]
    return [one for one in changed if len(one) == count]


def _fits(plan: ServingPlan, settings: Settings) -> bool:
    fit = served_fit(with_settings(plan, settings))
    return fit is not None and fit.verdict == "yes"
