"""Activation offload has the same losses and gradients.

What autograd keeps goes to host memory, parameters left out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from marks import slow
from planning import Measurement, make_plan
from torch import nn
from torch.overrides import TorchFunctionMode

from llmexp.launchers.training.activations import OnHost
from llmexp.training.plan.training_plan import TrainingPlan

LAYERS, HIDDEN, SEQ_LEN = 4, 128, 32
METHODS = {"torch": ["Naive", "R", "Z1"], "deepspeed": ["Naive", "F+R", "Z2"]}
CELLS = [
    slow(engine, method) if "Z" in method else (engine, method)
    for engine, methods in METHODS.items()
    for method in methods
]


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
def both(observe: Callable[..., Measurement], asked: set[str]) -> Callable[[str], Measurement]:
    def run(engine: str) -> Measurement:
        names = [name for name in METHODS[engine] if name in asked | {"Naive"}]
        moved = {f"{name}, moved": plan(engine, name, "memory.activation_offload=true") for name in names}
        return observe({name: plan(engine, name) for name in names} | moved)

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


class LateStream:
    """A stream of copies that come about only when the computation waits for them, as late as a GPU's may."""

    def __init__(self) -> None:
        self.late: list[tuple[int, Callable[[], object]]] = []
        self.issued = self.most_late = self.pinned = 0

    def wait_stream(self, other: object) -> None:
        pass

    def put_off(self, copy: Callable[[], object]) -> None:
        self.issued += 1
        self.late.append((self.issued, copy))
        self.most_late = max(self.most_late, len(self.late))

    def record_event(self) -> int:
        """Return the event of the copies so far: their number."""
        return self.issued

    def wait_event(self, issued: int) -> None:
        """Let the copies before an event come about; the computation's stream is the only one that waits."""
        while self.late and self.late[0][0] <= issued:
            self.late.pop(0)[1]()


class Late(TorchFunctionMode):
    """Puts off the copies of a block."""

    def __init__(self, stream: LateStream) -> None:
        super().__init__()
        self._stream = stream

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.Tensor.copy_:
            return function(*args, **(kwargs or {}))
        assert kwargs == {"non_blocking": True}
        to, source = args[0], weakref.ref(args[1])
        to.fill_(torch.nan)

        def copy() -> None:
            there = source()
            assert there is not None, "a tensor's memory was free before its copy was complete"
            with torch.no_grad():
                to.copy_(there)

        self._stream.put_off(copy)
        return to


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> LateStream:
    stream, empty = LateStream(), torch.empty

    def allocate(*sizes: Any, pin_memory: bool = False, **given: Any) -> torch.Tensor:
        stream.pinned += pin_memory
        return empty(*sizes, **given)

    monkeypatch.setattr(torch.cuda, "Stream", lambda *_: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)
    monkeypatch.setattr(torch.cuda, "stream", Late)
    monkeypatch.setattr(torch, "empty", allocate)
    return stream


def test_copies_of_their_own_stream_are_waited_for_before_anything_uses_them(late: LateStream) -> None:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8), nn.GELU()) for _ in range(6)]
    model, taken = nn.Sequential(*layers), torch.randn(3, 8)
    model(taken).sum().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    context = OnHost(model, torch.device("cuda"))
    first_pinned = 0
    for again in (False, True):
        model.zero_grad()
        with context:
            loss = model(taken).sum()
        assert not late.late
        allocated, late.most_late = late.pinned, 0
        loss.backward()
        # While an operator's tensors are waited for, those of the operators before it are on their way.
        assert late.most_late > 2
        if again:
            assert late.pinned == allocated == first_pinned, "the host's memory is used again"
        first_pinned = late.pinned
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            assert torch.equal(parameter.grad, gradient)


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
