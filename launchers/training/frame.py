"""The frame of every rank that trains: the plan is read, the work is done, its summary or its failure is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from llmexp.launchers.rank.frame import Rank, main

if TYPE_CHECKING:
    from llmexp.record.samples import RankSummary
    from llmexp.training.plan.training_plan import TrainingPlan


def train(work: Callable[[TrainingPlan, Rank], RankSummary]) -> NoReturn:
    """Run `work` for a training run's plan; never return."""

    def plan_type() -> type[TrainingPlan]:
        from llmexp.training.plan.training_plan import TrainingPlan

        return TrainingPlan

    main(work, plan_type)
