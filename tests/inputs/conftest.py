from __future__ import annotations

from collections.abc import Callable

import pytest
from planning import make_plan

from llmexp.training.plan.training_plan import TrainingPlan


@pytest.fixture
def plan() -> Callable[..., TrainingPlan]:
    """The one plan of a command line."""

    def of(*words: str) -> TrainingPlan:
        return make_plan("hardware=a800", *words)

    return of
