from __future__ import annotations

from collections.abc import Callable

import pytest

from llmexp.cli.arguments import run_parser
from llmexp.cli.run import jobs_of
from llmexp.plan.run_plan import RunPlan


@pytest.fixture
def plan() -> Callable[..., RunPlan]:
    """The one plan of a command line."""

    def of(*words: str) -> RunPlan:
        (job,) = jobs_of(run_parser().parse_intermixed_args(["hardware=a800", *words]))
        return job.plan

    return of
