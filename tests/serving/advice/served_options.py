"""The options of a command line, as the command asks for them."""

from __future__ import annotations

from typing import Any

from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.task import SERVE
from tests.open_plans import open_plans_of
from tests.planning import make_plan


def served(*words: str) -> Any:
    return make_plan("task=serve", *words)


def served_options(*words: str) -> list[ServingPlan]:
    """All options of these words; the words' own keys are fixed."""
    choice = open_plans_of("task=serve", *words)
    return list(SERVE.options(choice.plan_with, choice.fixed))  # type: ignore[arg-type]


def layout(plan: ServingPlan) -> tuple[int, int]:
    return plan.config.parallelism.tp, plan.config.parallelism.dp
