"""The options of task=serve: engines, degrees, copies, formats and limits that a command line leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llmexp.errors import ConfigError
from llmexp.serving.advice.front import is_beaten
from llmexp.serving.advice.open_keys import ENGINE, engine_of
from llmexp.serving.advice.refusals import refusal
from llmexp.serving.advice.space import ServingSpace
from llmexp.serving.advice.trials import ServedTrial
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.rates import LOOPS
from llmexp.serving.predict.unpredicted import reason
from llmexp.tasks.base import PlanWith


def options(plan_with: PlanWith[ServingPlan], fixed: Mapping[str, str]) -> Iterator[ServingPlan]:
    """Yield the plans that somebody might choose, those of one engine after another, the best first.

    Of loads that all have a rate these are those on the fewest cards that keep serve.slo; of others the fastest on one
    copy's cards and on all. Raises ConfigError where nothing fits, keeps the objective, or is predicted.
    """
    said: list[str] = []
    shown: list[ServedTrial] = []
    for engine in [None] if ENGINE in fixed else LOOPS:
        own = {ENGINE: engine} if engine else {}
        base = plan_with(own)
        if base is None or (why := _why_not(base)):
            said += [why] if base else []
            continue
        space = ServingSpace(base, engine_of(base), fixed)
        trials = space.choices()
        for trial in _best_of(trials) if shown else trials:
            plan = None if is_beaten(trial, shown, space.gain) else plan_with(own | space.words(trial))
            if plan and plan.predicted:
                shown.append(trial)
                yield plan
        said += [] if trials else [refusal(space)]
    if not shown:
        raise ConfigError(next(iter(said), "task=serve: the command line cannot be planned with any engine"))


def _why_not(base: ServingPlan) -> str:
    """Say why nothing of an engine is predicted; what its degrees or formats are in the way of is not said here."""
    why = reason(base)
    if why:
        return f"no advice: {why}"
    return f"no advice: {base.skip.reason}" if base.skip else ""


def _best_of(trials: list[ServedTrial]) -> list[ServedTrial]:
    """Return the best trial, and the best of those with all bits: engines differ in predictions by defaults alone."""
    most = max((trial.bits for trial in trials), default=None)
    exact = next((trial for trial in trials if trial.bits == most), None)
    return [trial for trial in trials if trial in (trials[0], exact)]
