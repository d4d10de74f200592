"""With kernels.fused_projections ranks of every engine train as one process does with a product a projection."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

FUSED = "kernels.fused_projections=true"
BOTH = {method: f"method={method} parallelism.dp=2" for method in ("Naive", "Z1", "Z2", "Z3", "F+R+Z3")}
CELLS = {
    "torch": {
        **BOTH,
        "pp": "method=Naive parallelism.dp=1 parallelism.pp=2 batch.accumulation=2",
        "cp": "method=Z3 parallelism.dp=1 parallelism.cp=2 batch.accumulation=2",
    },
    "deepspeed": {**BOTH, "cp": "method=Z3 parallelism.dp=1 parallelism.cp=2 batch.accumulation=2"},
}
each_cell = pytest.mark.parametrize(("engine", "cell"), [(engine, cell) for engine in CELLS for cell in CELLS[engine]])


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
        plans = {cell: plan(f"engine={engine}", FUSED, *words.split()) for cell, words in CELLS[engine].items()}
        return observe(plans, 2, "updates_worker")

    return cache(run)


@pytest.fixture(scope="module")
def apart(observe: Callable[..., Measurement]) -> Measurement:
    words = ("engine=torch", "parallelism.dp=1", "batch.micro=2", "method=Naive")
    return observe({"alone": plan(*words)}, 1, "updates_worker")


@each_cell
def test_losses_and_norms_are_those_of_a_product_a_projection(on_ranks, apart, engine: str, cell: str) -> None:
    ranks, expected = on_ranks(engine)[cell], apart["alone"][0]
    losses = [sum(both) / 2 for both in zip(*(rank["loss"] for rank in ranks), strict=True)]
    assert losses == pytest.approx(expected["loss"], rel=1e-6)
    for rank in ranks:
        assert rank["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=1e-6)
