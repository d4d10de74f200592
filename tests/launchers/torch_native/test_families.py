"""The models of conf/model that are given by fields of a config.json, made small by keys, have the losses of Naive."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import pytest
from families import GIVEN, VOCABULARY
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

RANKS = {"F": 1, "Z2": 2, "Z3": 2}


def plan(name: str, method: str, ranks: int = 1) -> TrainingPlan:
    fields = [f"model.config.{field}={value}" for field, value in GIVEN[name].items()]
    return make_plan(
        *("hardware=cpu", "engine=torch", f"parallelism.dp={ranks}", "data.seq_len=32", "precision=fp32"),
        *(f"model={name}", "optimizer.lr=1e-2", f"method={method}"),
        *fields,
    )


def losses(observe: Callable[..., Measurement], name: str, method: str, ranks: int = 1) -> tuple[list[float], ...]:
    """Of Naive and of a method."""
    plans = {each: plan(name, each, ranks) for each in ("Naive", method)}
    observed = observe(plans, ranks, "training_worker")
    return tuple(observed[each][0] for each in ("Naive", method))


@pytest.mark.ranks
@pytest.mark.parametrize("name", GIVEN)
def test_it_learns_and_recomputation_changes_no_loss(observe, name: str):
    plain, recomputed = losses(observe, name, "R")
    assert plain[0] == pytest.approx(log(VOCABULARY), rel=0.1)
    assert plain[-1] < plain[0]
    assert recomputed == pytest.approx(plain, rel=1e-5)


@pytest.mark.ranks
@pytest.mark.slow
@pytest.mark.parametrize("method", RANKS)
@pytest.mark.parametrize("name", GIVEN)
def test_a_method_has_the_losses_of_none(observe, name: str, method: str):
    if skip := plan(name, method).skip:
        pytest.skip(skip.reason)
    plain, changed = losses(observe, name, method, RANKS[method])
    assert changed == pytest.approx(plain, rel=1e-4)
