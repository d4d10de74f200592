"""What a plan says of its own limits, its cards and its changed mathematics, by label."""

from __future__ import annotations

from llmexp.serving.advice.bounds import bounds_of
from llmexp.serving.advice.cards import cards_for_rate, is_rated
from llmexp.serving.advice.changes import changes_of
from llmexp.serving.advice.offload.words import split_words
from llmexp.serving.analysis.request_latency import Objective
from llmexp.serving.plan.serving_plan import ServingPlan

_MOST_BOUNDS = 2


def advice_words(plan: ServingPlan) -> dict[str, str]:
    """Return the lines of a predicted plan, and of one that does not fit how it could be split."""
    if not plan.predicted:
        return {"offload": "" if plan.skip else split_words(plan)}
    return {
        "cards": _cards(plan) if is_rated(plan) and Objective.of(plan.config.serve.slo) else "",
        "bound": bound_words(plan),
        "changes": ", ".join(changes_of(plan)),
    }


def bound_words(plan: ServingPlan) -> str:
    """Say which limits of a predicted plan would bring most, and what lifts them."""
    return "; ".join(
        f"{one.limit} (+{one.gain:.0%} with twice of it{f': {one.lift}' if one.lift else ''})"
        for one in bounds_of(plan)[:_MOST_BOUNDS]
    )


def _cards(plan: ServingPlan) -> str:
    """Say how many cards of the plan's layout sustain its rates within serve.slo."""
    found = cards_for_rate(plan)
    if not found:
        return "no number of them keeps serve.slo in this layout"
    sure = f"{found.sure_devices}" if found.sure_devices else "no number"
    return f"{found.devices} keep serve.slo as predicted, {sure} also at the intervals' worse end"
