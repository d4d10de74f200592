"""The batch that the search for the largest one begins with."""

from __future__ import annotations

from llmexp.plan.training_plan import TrainingPlan


def first_batch(plan: TrainingPlan) -> int:
    """Return the samples a rank of the first trial."""
    return 1
