"""Training in fp16 learns what fp32 does, and a step whose gradients overflow updates nothing and is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import hypot
from typing import Any

import pytest
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

STEPS = 5
CLIP = 0.5
# Updates by SGD are as large as gradients are: a scale that stays in them shows, which AdamW would divide out.
SGD = ("optimizer=sgd", "optimizer.lr=0.1")
ADAMW = ("optimizer=adamw", "optimizer.lr=1e-3")
SMALL = ("model=tiny", "model.num_layers=2", "model.hidden_size=32", "model.intermediate_size=64", "data.seq_len=16")
CLIPPED = f"optimizer.clip_norm={CLIP}"
# A power of the first scale that overflows in the first steps, and one that does not.
HUGE, MODEST = 19, 12
# Of losses, of gradient norms, and of how far rounded parameters move (measured: at most 1e-4, 1e-3 and 1e-2).
LOSSES_WITHIN, NORMS_WITHIN, MOVES_WITHIN = 5e-3, 1e-2, 3e-2
PIPELINE = "method=Naive parallelism.dp=1 parallelism.pp=2 batch.accumulation=2"
SHARDED_STAGES = PIPELINE.replace("Naive", "Z3")
CELLS = {
    "torch": {
        "Z1": "method=Z1 parallelism.dp=2",
        "Z3": "method=Z3 parallelism.dp=2",
        "pp": PIPELINE,
        "pp Z3": SHARDED_STAGES,
    },
    "deepspeed": {"Z1": "method=Z1 parallelism.dp=2", "Z3": "method=Z3 parallelism.dp=2"},
    "megatron": {"Z1": "method=Z1 parallelism.dp=2", "pp": PIPELINE},
}
# Where each rank holds other parameters than the others, or parts of them.
SHARDED = ("Z3", "pp", "pp Z3")
each_cell = pytest.mark.parametrize(("engine", "cell"), [(engine, cell) for engine in CELLS for cell in CELLS[engine]])


def plan(engine: str, *words: str) -> TrainingPlan:
    optimizer = ADAMW if engine == "megatron" else SGD
    common = ("hardware=cpu", "measure=smoke", f"measure.steps={STEPS}", *SMALL)
    return make_plan(*common, f"engine={engine}", *optimizer, *words)


@pytest.fixture(scope="module")
def on_ranks(observe: Callable[..., Measurement]) -> Callable[[str], Measurement]:
    def run(engine: str) -> Measurement:
        fp16 = {cell: ("precision=fp16", *words.split()) for cell, words in CELLS[engine].items()}
        modest = {cell: plan(engine, *fp16[cell], CLIPPED, _power(MODEST)) for cell in fp16}
        huge = {f"{cell} huge": plan(engine, *fp16[cell], _power(HUGE)) for cell in fp16}
        return observe(modest | huge, 2, "scaled_worker")

    return cache(run)


@pytest.fixture(scope="module")
def in_fp32(observe: Callable[..., Measurement]) -> Callable[[], Measurement]:
    words = ("precision=fp32", "parallelism.dp=1", "batch.micro=2", "method=Naive", CLIPPED)
    plans = {"torch": plan("torch", *words), "megatron": plan("torch", *words, *ADAMW)}
    return cache(lambda: observe(plans, 1, "scaled_worker"))


def _power(power: int) -> str:
    return f"precision.initial_scale_power={power}"


def _of_all(ranks: list[dict[str, Any]], quantity: str) -> list[float]:
    return [sum(each) / len(ranks) for each in zip(*(rank[quantity] for rank in ranks), strict=True)]


@each_cell
def test_losses_and_norms_are_near_those_of_fp32(on_ranks, in_fp32, engine: str, cell: str) -> None:
    ranks, expected = on_ranks(engine)[cell], in_fp32()["megatron" if engine == "megatron" else "torch"][0]
    assert _of_all(ranks, "loss") == pytest.approx(expected["loss"], rel=LOSSES_WITHIN)
    assert _of_all(ranks, "loss") != expected["loss"]
    assert min(expected["gradient_norm"]) > 2 * CLIP
    for rank in ranks:
        assert rank["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=NORMS_WITHIN)
        assert rank["loss_scale"] == 2.0**MODEST
        assert rank["skipped"] == [False] * STEPS
        assert rank["products_in"] == "fp16"


@each_cell
def test_a_step_that_overflows_updates_nothing_and_halves_the_scale(on_ranks, engine: str, cell: str) -> None:
    ranks = on_ranks(engine)[f"{cell} huge"]
    skipped, holders = ranks[0]["skipped"], ranks if cell in SHARDED else ranks[:1]
    moved = [hypot(*each) for each in zip(*(rank["moved"] for rank in holders), strict=True)]
    assert skipped[0]
    assert not skipped[-1]
    assert [move == 0 for move in moved] == skipped
    for rank in ranks:
        assert rank["skipped"] == skipped
        assert rank["scales"] == [2.0 ** (HUGE - sum(skipped[:step])) for step in range(STEPS)]
        assert [norm is None for norm in rank["gradient_norm"]] == skipped
    if engine != "megatron":
        expected = [0.1 * (norm or 0) for norm in ranks[0]["gradient_norm"]]
        assert moved == pytest.approx(expected, rel=MOVES_WITHIN)
