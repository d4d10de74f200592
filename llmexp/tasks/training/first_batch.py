"""The batch that the search for the largest one begins with, where the plan's arithmetic says that it ends."""

from llmexp.plan.training_plan import TrainingPlan


def first_batch(plan: TrainingPlan) -> int:
    return 1
