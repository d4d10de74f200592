"""Plans for the tests of the ranks, as the command line makes them."""

from __future__ import annotations

from functools import cache
from typing import Any

from llmexp.cli.arguments import run_parser
from llmexp.cli.run import jobs_of
from llmexp.plan.run_plan import RunPlan
from llmexp.reference import read_table

Observed = dict[str, list[dict[str, Any]]]


def table03_methods(model: str = "7B") -> list[str]:
    return list(dict.fromkeys(row["method"] for row in read_table("table03_pretrain_bs1") if row["model"] == model))


def make_plan(*words: str) -> RunPlan:
    (job,) = jobs_of(run_parser().parse_intermixed_args(words))
    return job.plan


@cache
def make_plans(methods: tuple[str, ...], *words: str) -> dict[str, RunPlan]:
    """Of these methods, by their canonical names: planned as one sweep, which is composed once."""
    jobs = jobs_of(run_parser().parse_intermixed_args([*words, f"method={','.join(methods)}"]))
    return {job.plan.method: job.plan for job in jobs}
