"""With precision.qat ranks of every engine train as one process does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

CELLS = ("Naive", "Z1", "Z2", "Z3", "F+R+Z3")
each_cell = pytest.mark.parametrize(
    ("engine", "method"), [(engine, method) for engine in ("torch", "deepspeed") for method in CELLS]
)


def plan(*words: str) -> TrainingPlan:
    common = ("hardware=cpu", "data.seq_len=32", "precision=fp32", "measure=smoke", "measure.steps=3")
    rounding = ("precision.qat=int4", "precision.qat_group_size=8")
    sgd = ("optimizer=sgd", "optimizer.lr=0.1", "optimizer.clip_norm=0.5")
    made = make_plan(*common, *rounding, "measure.warmup_steps=1", *sgd, *words)
    assert made.skip is None
    return made


@pytest.fixture(scope="module")
def on_ranks(observe: Callable[..., Measurement]) -> Callable[[str], Measurement]:
    def run(engine: str) -> Measurement:
        return observe(
            {each: plan(f"engine={engine}", f"method={each}", "parallelism.dp=2") for each in CELLS},
            2,
            "updates_worker",
        )

    return cache(run)


@pytest.fixture(scope="module")
def expected(observe: Callable[..., Measurement]) -> Measurement:
    words = ("engine=torch", "parallelism.dp=1", "batch.micro=2", "method=Naive")
    return observe({"alone": plan(*words), "plain": plan(*words, "precision.qat=null")}, 1, "updates_worker")


@each_cell
def test_losses_and_norms_are_those_of_one_process(on_ranks, expected, engine: str, method: str) -> None:
    """After an update a last bit decides which way some weights are rounded."""
    ranks, alone, plain = on_ranks(engine)[method], expected["alone"][0], expected["plain"][0]
    losses = [sum(both) / 2 for both in zip(*(rank["loss"] for rank in ranks), strict=True)]
    assert losses[0] == pytest.approx(alone["loss"][0], rel=1e-6)
    assert losses[0] != pytest.approx(plain["loss"][0], rel=1e-4)
    assert losses == pytest.approx(alone["loss"], rel=2e-2)
    for rank in ranks:
        assert rank["gradient_norm"][0] == pytest.approx(alone["gradient_norm"][0], rel=1e-5)
