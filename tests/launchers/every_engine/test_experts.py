"""Experts under each method of the engines that train transformers' models.

They have one loss curve, that of one process on the same sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from marks import slow, tier
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

Runs = Callable[[str], Measurement]
ENGINES = ["deepspeed", "torch"]
METHODS = ["Naive", "F", "R", "C", "Z1", "Z2", "Z3", "Z2+O", "Z3+O", "F+R+Z3"]
# Both kinds of partition and of attention; the others are run by make test-sweeps.
SHORT = ["Naive", "R", "Z2+O", "Z3", "F+R+Z3"]
QUICK = ["Naive", "R", "Z3", "F+R+Z3"]
LAYERS = 2
FP32_TOLERANCE = 1e-5
# At most 8 of 32 experts have a token in a pass.
FEW_TOKENS = ("model.num_experts=32", "model.experts_per_token=1", "data.seq_len=8", "model.intermediate_size=32")
FEW_TOKENS_METHODS = {f"{method}, few tokens": method for method in ("Naive", "Z2", "Z3")}
# 3 experts cannot be halved, each of their matrices can.
ODD = ("model.num_experts=3",)


def short(method: str) -> Any:
    return pytest.param(method, marks=tier(method, QUICK, SHORT))


def plan(engine: str, method: str, *overrides: str) -> TrainingPlan:
    small = (
        "model.hidden_size=64",
        "model.intermediate_size=96",
        "model.head_dim=16",
        "model.vocab_size=288",
        f"model.num_layers={LAYERS}",
    )
    words = (
        "hardware=cpu",
        "parallelism.dp=2",
        "data.seq_len=48",
        f"engine={engine}",
        f"method={method}",
        "precision=fp32",
    )
    return make_plan("model=tiny-moe", *small, *words, *overrides)


@pytest.fixture(scope="module")
def trained(observe: Callable[..., Measurement], asked: set[str]) -> Runs:
    def run(engine: str) -> Measurement:
        plans = {name: plan(engine, name) for name in METHODS if name in asked.union(QUICK)}
        plans |= {
            name: plan(engine, method, *FEW_TOKENS) for name, method in FEW_TOKENS_METHODS.items() if name in asked
        }
        return observe(plans | {"Z3, odd": plan(engine, "Z3", *ODD)})

    return cache(run)


@pytest.fixture(scope="module")
def alone(observe: Callable[..., Measurement]) -> Measurement:
    """One process; the sequences of both ranks in one batch."""
    words = ("parallelism.dp=1", "batch.micro=2")
    kinds = {"even": (), "few tokens": FEW_TOKENS, "odd": ODD}
    return observe({name: plan("torch", "Naive", *words, *more) for name, more in kinds.items()}, ranks=1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", [*map(short, METHODS), "Z3, odd"])
def test_losses_follow_the_curve_of_one_process(trained: Runs, alone: Measurement, engine: str, method: str) -> None:
    losses = alone["odd" if "odd" in method else "even"][0]["losses"]
    assert losses[-1] < losses[0] - 0.05
    assert trained(engine)[method][0]["losses"] == pytest.approx(losses, abs=FP32_TOLERANCE)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", [name if name == "Z3, few tokens" else slow(name) for name in FEW_TOKENS_METHODS])
def test_experts_that_no_token_comes_to_change_nothing(
    trained: Runs, alone: Measurement, engine: str, method: str
) -> None:
    assert trained(engine)[method][0]["losses"] == pytest.approx(alone["few tokens"][0]["losses"], abs=FP32_TOLERANCE)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", [*map(short, ("Naive", "F", "R", "Z2", "Z3", "Z2+O", "Z3+O")), "Z3, odd"])
def test_ranks_hold_what_is_predicted(trained: Runs, engine: str, method: str) -> None:
    predicted = plan(engine, "Z3", *ODD).memory if "odd" in method else plan(engine, method).memory
    assert predicted is not None
    for rank in trained(engine)[method]:
        for kind in ("parameters", "optimizer"):
            held, expected = rank["state"][kind], getattr(predicted, kind)
            assert held["device"] + held["host"] == pytest.approx(expected.device + expected.host, rel=0.05), kind


@pytest.mark.parametrize("engine", ENGINES)
def test_atoms_do_with_experts_what_they_do_without(trained: Runs, engine: str) -> None:
    ran = trained(engine)
    assert [ran[name][0]["layer_calls"] for name in ("Naive", "R", "F+R+Z3")] == [LAYERS, 2 * LAYERS, 2 * LAYERS]
    assert ran["F+R+Z3"][0]["attention_kernel"] == "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert ran["Naive"][0]["attention_kernel"] == "aten::_softmax"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", [pytest.param("C", marks=pytest.mark.sweep)])
def test_c_compiles_experts_without_breaks(trained: Runs, engine: str, method: str) -> None:
    (observed, _) = trained(engine)[method]
    assert observed["compiled_graphs"][-1] > 0
    assert observed["graph_breaks"] == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_how_experts_are_computed_is_said(trained: Runs, engine: str) -> None:
    assert {ranks[0]["what_ran"]["experts_implementation"] for ranks in trained(engine).values()} == {"grouped_mm"}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_cannot_be_done_with_experts_is_a_skip_with_the_reason(engine: str) -> None:
    assert "Q replaces linear layers, and the experts of model=tiny-moe are stacks" in str(plan(engine, "Q").skip)
    shared = str(plan(engine, "Z2+O", "parallelism.ep=2").skip)
    assert ("parallelism only, not ep=2" if engine == "deepspeed" else "with F, R, RS, Z2, Z3, not with O") in shared
