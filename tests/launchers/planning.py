"""Plans for the tests of the ranks, as the command line makes them."""

from __future__ import annotations

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
