"""Activation offload has the same losses and gradients.

What autograd keeps goes to host memory, parameters left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from planning import Measurement, make_plan
from torch import nn

from llmexp.launchers.training.activations import OnHost
from llmexp.plan.training_plan import TrainingPlan

LAYERS, HIDDEN, SEQ_LEN = 4, 128, 32
METHODS = {"torch": ["Naive", "R", "Z1"], "deepspeed": ["Naive", "F+R", "Z2"]}
CELLS = [(engine, method) for engine, methods in METHODS.items() for method in methods]


def plan(engine: str, method: str, *words: str) -> TrainingPlan:
    return make_plan(
        "hardware=cpu",
        "parallelism.dp=2",
        f"data.seq_len={SEQ_LEN}",
        "precision=fp32",
        f"engine={engine}",
        f"method={method}",
        *words,
    )


@pytest.fixture(scope="module")
def both(observe: Callable[..., Measurement]) -> Callable[[str], Measurement]:
    def run(engine: str) -> Measurement:
        kept = {name: plan(engine, name) for name in METHODS[engine]}
        return observe(
            kept | {f"{name}, moved": plan(engine, name, "memory.activation_offload=true") for name in METHODS[engine]}
        )

    return cache(run)


def test_what_backward_needs_is_copied_but_for_parameters() -> None:
    first, second = nn.Linear(8, 16), nn.Linear(16, 4)
    model, taken = nn.Sequential(first, nn.Tanh(), second), torch.randn(3, 8)
    model(taken).sum().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    context = OnHost(model, torch.device("cpu"))
    with context:
        loss = model(taken).sum()
    # Two inputs of matrices, and tanh's result, which is one of them: 3 x 8, 3 x 16 and 3 x 16 of 4 bytes.
    assert context.moved_bytes == 4 * 3 * (8 + 16 + 16)
    with context:
        model(taken)
    assert context.moved_bytes == 4 * 3 * (8 + 16 + 16), "counted once"
    loss.backward()
    assert all(
        torch.equal(parameter.grad, gradient) for parameter, gradient in zip(model.parameters(), expected, strict=True)
    )


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize(("engine", "method"), CELLS)
def test_losses_and_gradients_stay(both, engine: str, method: str) -> None:
    kept, moved = both(engine)[method], both(engine)[f"{method}, moved"]
    assert moved[0]["losses"] == pytest.approx(kept[0]["losses"], abs=1e-6)
    assert [rank["gradient_squares"] for rank in moved] == pytest.approx(
        [rank["gradient_squares"] for rank in kept], rel=1e-6
    )


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize(("engine", "method"), CELLS)
def test_with_r_little_more_than_the_layers_inputs_are_moved(both, engine: str, method: str) -> None:
    whole = both(engine)["Naive, moved"][0]["what_ran"]["activation_offload_bytes"]
    found = both(engine)[f"{method}, moved"][0]["what_ran"]["activation_offload_bytes"]
    inputs = 4 * LAYERS * SEQ_LEN * HIDDEN
    if "R" in method.split("+"):
        assert inputs < found < whole / 4
    else:
        assert found == whole > 10 * inputs
    assert "activation_offload_bytes" not in both(engine)[method][0]["what_ran"]
