"""Learning-rate schedules and clipping are the same on every engine, and on ranks as in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

STEPS = 6
CLIP = 0.5
# Clipping leaves AdamW's updates nearly as they are, SGD's not.
SGD = ("optimizer=sgd", "optimizer.lr=0.1")
ADAMW = ("optimizer=adamw", "optimizer.lr=1e-3")
RATES = ("optimizer.schedule=cosine", "optimizer.warmup_steps=2", "optimizer.final_lr_share=0.1")
CLIPPED = f"optimizer.clip_norm={CLIP}"
TOLERANCE = 1e-6
# Each engine with words, by the name of the cell.
CELLS = {
    "torch": {
        **{method: f"method={method} parallelism.dp=2" for method in ("Naive", "Z1", "Z2", "Z3")},
        "pp": "method=Naive parallelism.dp=1 parallelism.pp=2 batch.accumulation=2",
        "tp": "method=Naive parallelism.dp=1 parallelism.tp=2 batch.accumulation=2",
        "tp, Z3": "method=Z3 parallelism.dp=1 parallelism.tp=2 parallelism.sequence=true batch.accumulation=2",
    },
    "deepspeed": {method: f"method={method} parallelism.dp=2" for method in ("Naive", "Z1", "Z2", "Z3")},
    "megatron": {method: f"method={method} parallelism.dp=2" for method in ("Naive", "Z1")},
}
each_cell = pytest.mark.parametrize(("engine", "cell"), [(engine, cell) for engine in CELLS for cell in CELLS[engine]])


def plan(engine: str, *words: str) -> TrainingPlan:
    common = ("hardware=cpu", "data.seq_len=32", "precision=fp32", "measure=smoke", f"measure.steps={STEPS - 1}")
    optimizer = ADAMW if engine == "megatron" else SGD
    return make_plan(*common, "measure.warmup_steps=1", f"engine={engine}", *optimizer, *RATES, *words)


@pytest.fixture(scope="module")
def on_ranks(observe: Callable[..., Measurement]) -> Callable[[str], Measurement]:
    def run(engine: str) -> Measurement:
        return observe(
            {cell: plan(engine, *CELLS[engine][cell].split(), CLIPPED) for cell in CELLS[engine]}, 2, "updates_worker"
        )

    return cache(run)


@pytest.fixture(scope="module")
def alone(observe: Callable[..., Measurement]) -> Callable[[], Measurement]:
    words = ("parallelism.dp=1", "batch.micro=2", "method=Naive")
    plans = {
        "sgd": plan("torch", *words, CLIPPED),
        "adamw": plan("torch", *words, *ADAMW, CLIPPED),
        "sgd unclipped": plan("torch", *words),
        "adamw unclipped": plan("torch", *words, *ADAMW),
    }
    return cache(lambda: observe(plans, 1, "updates_worker"))


def like(alone: Callable[[], Measurement], engine: str) -> dict[str, Any]:
    return alone()["adamw" if engine == "megatron" else "sgd"][0]


@each_cell
def test_every_engine_takes_the_same_rates(on_ranks, alone, engine: str, cell: str) -> None:
    expected = like(alone, engine)["lr"]
    lr = max(expected)
    assert expected[:3] == pytest.approx([lr / 3, lr * 2 / 3, lr])
    assert expected[3:] == sorted(expected[3:], reverse=True)
    assert 0.1 * lr < expected[-1] < expected[2]
    for rank in on_ranks(engine)[cell]:
        assert rank["lr"] == expected


@each_cell
def test_ranks_clip_by_the_norm_of_the_whole_gradient(on_ranks, alone, engine: str, cell: str) -> None:
    expected = like(alone, engine)
    assert min(expected["gradient_norm"]) > 2 * CLIP
    for rank in on_ranks(engine)[cell]:
        assert rank["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=TOLERANCE)
        assert rank["first"] == pytest.approx(expected["gradient_norm"][0], rel=TOLERANCE)


@each_cell
def test_what_is_updated_is_what_was_clipped(on_ranks, alone, engine: str, cell: str) -> None:
    losses = [sum(both) / 2 for both in zip(*(rank["loss"] for rank in on_ranks(engine)[cell]), strict=True)]
    assert losses == pytest.approx(like(alone, engine)["loss"], rel=TOLERANCE)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_clipping_changes_the_training(alone, optimizer: str) -> None:
    clipped, free = (alone()[name][0] for name in (optimizer, f"{optimizer} unclipped"))
    assert free["gradient_norm"] == [None] * STEPS
    assert free["loss"][-1] != pytest.approx(clipped["loss"][-1], rel=20 * TOLERANCE)
