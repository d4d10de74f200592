"""The order of runs that start from each other's models: no run before the one that it starts from."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.record.plan import RunPlan


def levels(plans: Sequence[RunPlan]) -> list[list[RunPlan]]:
    """Return the plans in groups that are measured one after the other.

    The first has the runs that start from no other run of the sweep, each later one those that start from the one
    before it.
    """
    by_id = {plan.id: plan for plan in plans}
    found: list[list[RunPlan]] = []
    for plan in plans:
        depth = _depth(plan, by_id)
        found += [[] for _ in range(depth + 1 - len(found))]
        found[depth].append(plan)
    return [level for level in found if level]


def maker_of(plan: RunPlan) -> str | None:
    """Return the id of the run that a run starts from, or None."""
    model = plan.config.starts_from
    return model.made.run if model and model.made else None


def _depth(plan: RunPlan, by_id: dict[str, RunPlan]) -> int:
    maker = by_id.get(maker_of(plan) or "")
    return 1 + _depth(maker, by_id) if maker else 0
