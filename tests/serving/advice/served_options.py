"""The options of a command line, as the command asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmexp.errors import ConfigError
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.task import SERVE
from tests.planning import make_plan


def served(*words: str) -> Any:
    return make_plan("task=serve", *words)


def served_options(*words: str) -> list[ServingPlan]:
    """All options of these words; the words' own keys are fixed."""

    def plan_with(more: Mapping[str, str]) -> Any:
        try:
            return served(*words, *(f"{key}={value}" for key, value in more.items()))
        except ConfigError:
            return None

    return list(SERVE.options(plan_with, {word.split("=")[0] for word in ("task=serve", *words)}))


def layout(plan: ServingPlan) -> tuple[int, int]:
    return plan.config.parallelism.tp, plan.config.parallelism.dp
