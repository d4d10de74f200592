"""Muon on ranks that hold whole parameters or parts of them: the training of one process, and who updated what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

METHODS = ["Naive", "Z1", "Z2", "Z3"]
# Muon's products are in bf16.
TOLERANCE = 1e-4


def plan(method: str = "Naive", *words: str) -> TrainingPlan:
    return make_plan(
        "hardware=cpu",
        "parallelism.dp=2",
        "engine=torch",
        "optimizer=muon",
        "data.seq_len=32",
        "precision=fp32",
        "optimizer.lr=1e-3",
        f"method={method}",
        *words,
    )


def matrices_of(made: TrainingPlan) -> int:
    shape = made.config.model
    return made.parameters - 2 * shape.vocab_size * shape.hidden_size - (2 * shape.num_layers + 1) * shape.hidden_size


@pytest.fixture(scope="module")
def together(observe: Callable[..., Measurement]) -> Measurement:
    plans = {method: plan(method) for method in METHODS} | {"mixed": plan("Z1", "precision=bf16_mixed")}
    return observe(plans, 2, "optimizers_worker")


@pytest.fixture(scope="module")
def alone(observe: Callable[..., Measurement]) -> Measurement:
    words = ("parallelism.dp=1", "batch.micro=2")
    plans = {"muon": plan("Naive", *words), "adamw": plan("Naive", *words, "optimizer=adamw")}
    return observe(plans | {"mixed": plan("Naive", *words, "precision=bf16_mixed")}, 1, "optimizers_worker")


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_two_ranks_do_the_training_of_one(together, alone, method: str) -> None:
    (one,) = alone["muon"]
    assert together[method][0]["losses"] == pytest.approx(one["losses"], rel=TOLERANCE)
    assert one["losses"][-1] != pytest.approx(alone["adamw"][0]["losses"][-1], rel=10 * TOLERANCE)


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_the_record_says_how_many_parameters_each_class_updated(together, method: str) -> None:
    made = plan(method)
    matrices = matrices_of(made)
    said = together[method][0]["what_ran"]["optimizer_parameters"]
    assert said == {"torch.optim.Muon": matrices, "torch.optim.adamw.AdamW": made.parameters - matrices}


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_matrices_have_one_moment_and_the_rest_has_two(together, method: str) -> None:
    made, held = plan(method), [rank["state"]["moments"] for rank in together[method]]
    copies = len(held) if method == "Naive" else 1
    assert sum(held) == copies * round(made.optimizer_state_bytes_per_parameter * made.parameters)


@pytest.mark.ranks
@pytest.mark.long
def test_copies_of_the_parameters_keep_their_optimizers(together, alone) -> None:
    assert together["mixed"][0]["losses"] == pytest.approx(alone["mixed"][0]["losses"], rel=5e-3)
    assert (
        together["mixed"][0]["what_ran"]["optimizer_parameters"]
        == together["Z1"][0]["what_ran"]["optimizer_parameters"]
    )


@pytest.mark.ranks
@pytest.mark.long
def test_fsdp2_gathers_matrices_for_every_product_and_z1_gathers_none(observe: Callable[..., Measurement]) -> None:
    plans = {"Z1": plan("Z1"), "Z3": plan("Z3"), "AdamW": plan("Z3", "optimizer=adamw")}
    seen = observe(plans, 2, "gathers_worker")
    matrices = 4 * matrices_of(plans["Z3"])
    assert seen["Z1"][0] == seen["AdamW"][0] == {}
    assert seen["Z3"][0]["all_gather_into_tensor"] == pytest.approx(3.36 * matrices, rel=0.01)
    assert seen["Z3"][0]["all_reduce"] == pytest.approx(0.90 * matrices, rel=0.01)
