"""The batch that the search for the largest one begins with: where the plan's arithmetic says that it ends."""

from __future__ import annotations

from llmexp.plan.fit import largest_micro
from llmexp.plan.training_plan import TrainingPlan


def first_batch(plan: TrainingPlan) -> int:
    """Return the samples a rank of the first trial; 1 where sizes are not known."""
    return largest_micro(plan) or 1
