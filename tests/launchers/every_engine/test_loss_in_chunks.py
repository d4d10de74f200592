"""With kernels.chunked_loss ranks of every engine train as one process does with the ordinary head."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

METHODS = ("Naive", "Z1", "Z2", "Z3")
each_engine = pytest.mark.parametrize("engine", ["torch", "deepspeed"])


def plan(*words: str) -> TrainingPlan:
    common = ("hardware=cpu", "data.seq_len=32", "precision=fp32", "measure=smoke", "measure.steps=3")
    made = make_plan(
        *common, "measure.warmup_steps=1", "optimizer=sgd", "optimizer.lr=0.1", "optimizer.clip_norm=0.5", *words
    )
    assert made.skip is None
    return made


@pytest.fixture(scope="module")
def on_ranks(observe: Callable[..., Measurement]) -> Callable[[str], Measurement]:
    def run(engine: str) -> Measurement:
        words = (f"engine={engine}", "parallelism.dp=2", "kernels.chunked_loss=true")
        return observe({method: plan(*words, f"method={method}") for method in METHODS}, 2, "updates_worker")

    return cache(run)


@pytest.fixture(scope="module")
def ordinary(observe: Callable[..., Measurement]) -> Measurement:
    words = ("engine=torch", "parallelism.dp=1", "batch.micro=2", "method=Naive")
    return observe({"alone": plan(*words)}, 1, "updates_worker")


@each_engine
@pytest.mark.parametrize("method", METHODS)
def test_losses_and_norms_are_those_of_the_ordinary_head(on_ranks, ordinary, engine: str, method: str) -> None:
    ranks, expected = on_ranks(engine)[method], ordinary["alone"][0]
    losses = [sum(both) / 2 for both in zip(*(rank["loss"] for rank in ranks), strict=True)]
    assert losses == pytest.approx(expected["loss"], rel=1e-6)
    for rank in ranks:
        assert rank["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=1e-6)
