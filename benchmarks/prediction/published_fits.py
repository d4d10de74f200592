"""The least memory that a published run can have taken, and what it must have done to fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from benchmarks.prediction.published_plans import Planned, planned
from benchmarks.prediction.published_programs import engine_of
from benchmarks.prediction.published_rows import Row
from llmexp.record.memory import Fit
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.training_plan import TrainingPlan

TO_FIT = "whatever else it needs to fit"


def least_fit(made: Planned) -> Fit | None:
    """Return how the least that a run can need fits: a no has to be true of whoever ran it.

    Selective recomputation keeps some results of every layer, at least those that full recomputation keeps. Megatron's
    adapters have frozen weights and activations in fp8, which no plan counts.
    """
    assert made.plan is not None
    if engine_of(made.row) == "megatron" and made.row.adapter == "lora":
        return None
    selective = made.row.recomputation == "selective" and planned(replace(made.row, recomputation="full")).plan
    plan = _lean(selective or made.plan)
    return fit_of(plan, plan.batch.micro)


def rows_that_may_fit(row: Row) -> Iterator[Row]:
    """Yield a row with one of the things that save memory and that its source does not speak of, then with more."""
    changes: list[dict[str, Any]] = []
    if row.sharding is None and row.replicas > 1:
        changes.append({"sharding": 3})
    if not row.sequence_parallel and row.tp > 1:
        changes.append({"sequence_parallel": "yes"})
    if not row.recomputation:
        changes.append({"recomputation": "full"})
    for count in range(1, len(changes) + 1):
        for some in combinations(changes, count):
            yield replace(row, **{name: value for change in some for name, value in change.items()})


def _lean(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan that keeps no more activations than programs with fused norms, activations and losses do.

    A plan counts what llmexp's own ranks keep, which is more.
    """
    kernels = plan.config.kernels.model_copy(update={"liger": True})
    return plan.model_copy(update={"config": plan.config.model_copy(update={"kernels": kernels})})
