from __future__ import annotations

from collections.abc import Callable

import pytest
from planning import make_plan

from llmexp.plan.run_plan import RunPlan


@pytest.fixture
def plan() -> Callable[..., RunPlan]:
    """The one plan of a command line."""

    def of(*words: str) -> RunPlan:
        return make_plan("hardware=a800", *words)

    return of
