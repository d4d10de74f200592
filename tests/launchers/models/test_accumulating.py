"""kernels.fused_accumulation: gradients are those of ordinary accumulation, and no product is held beside them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import stepping
import torch
from marks import slow
from planning import make_plan
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from llmexp.errors import ConfigError
from llmexp.launchers.models.accumulating import AccumulatingLinear, FusedAccumulation
from llmexp.measure.compilation import Compilation
from llmexp.measure.kernels import KernelProbe

CPU = torch.device("cpu")
PASSES, LAYERS = 4, 2
# Seven matrices a layer, and the head.
PRODUCTS = PASSES * (7 * LAYERS + 1)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    # Dynamo makes an instance of the class that it traces.
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
]


@dataclass
class Trained:
    losses: list[float] = field(default_factory=list)
    gradients: list[list[torch.Tensor | None]] = field(default_factory=list)
    weights: list[torch.Tensor] = field(default_factory=list)
    flops: int = 0
    ran: dict[str, Any] = field(default_factory=dict)
    operators: dict[str, int] = field(default_factory=dict)
    left: list[torch.Tensor | None] = field(default_factory=list)


def train(words: list[str], fused: bool) -> Trained:
    """Two steps; their gradients as the optimizer gets them, and what the profiler sees in a third one."""
    from llmexp.launchers.torch_native import worker  # DDP's optimizers take a second to import

    fixed = ["hardware=cpu", "engine=torch", "parallelism.dp=1", "model=tiny", f"model.num_layers={LAYERS}"]
    key = [f"kernels.fused_accumulation={str(fused).lower()}"]
    plan = make_plan(*fixed, *key, f"batch.accumulation={PASSES}", "data.seq_len=32", "batch.micro=2", *words)
    assert plan.skip is None
    torch.manual_seed(0)
    training: Any = worker.build(plan, CPU)
    made, parameters = Trained(), list(training.module.parameters())
    training.layout.optimizer.register_step_pre_hook(
        lambda *_: made.gradients.append([None if p.grad is None else p.grad.clone() for p in parameters])
    )
    batches = stepping.batches_of(plan, training, 3, CPU)
    probe = KernelProbe()
    counter = FlopCounterMode(display=False)
    for step in range(3):
        compiles = "C" in plan.method.split("+")
        with (nullcontext(), counter if not compiles else nullcontext(), probe.watch())[step]:
            for batch in next(batches):
                loss = training.forward(batch)
                training.backward(loss)
                training.step()
                made.losses.append(loss.item())
    made.flops, made.ran, made.operators = counter.get_total_flops(), training.what_ran(), probe.names
    made.weights, made.left = [p.detach() for p in parameters], [p.grad for p in parameters]
    return made


def assert_the_same(words: list[str]) -> Trained:
    ordinary, fused = train(words, False), train(words, True)
    assert fused.losses == pytest.approx(ordinary.losses, abs=1e-6)
    torch.testing.assert_close(fused.gradients, ordinary.gradients, atol=1e-6, rtol=1e-5)
    assert fused.flops == ordinary.flops
    assert fused.left == ordinary.left == [None] * len(fused.weights)
    assert "llmexp::add_product" not in ordinary.operators
    assert "accumulated_products" not in ordinary.ran
    return fused


@pytest.mark.parametrize("method", ["F", "R", "Z1"])
@pytest.mark.usefixtures("alone")
def test_losses_and_gradients_are_those_of_ordinary_accumulation(method: str) -> None:
    fused = assert_the_same([f"method={method}", "precision=fp32"])
    assert fused.ran["accumulated_products"] == fused.operators["llmexp::add_product"] == PRODUCTS


@pytest.mark.parametrize(("method", "backend"), [("F+C", "aot_eager"), slow("F+R+C", "inductor")])
@pytest.mark.usefixtures("alone")
def test_compiled_layers_stay_one_graph(method: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch.compiler.reset()
    before = Compilation.so_far()
    fused = assert_the_same([f"method={method}", "precision=fp32"])
    assert fused.ran["accumulated_products"] == fused.operators["llmexp::add_product"] == PRODUCTS
    assert Compilation.so_far().graph_breaks == before.graph_breaks
    # A layer without the key and one with it; both have the same loss.
    assert Compilation.so_far().graphs - before.graphs == 3


@pytest.mark.usefixtures("alone")
def test_a_head_that_shares_the_embedding_accumulates_as_ever() -> None:
    fused = assert_the_same(["method=F", "precision=fp32", "model.tie_embeddings=true"])
    assert fused.ran["accumulated_products"] == PRODUCTS - PASSES


@pytest.mark.usefixtures("alone")
def test_a_product_is_added_to_the_sum_before_it_is_rounded() -> None:
    words = ["method=F", "precision=bf16_mixed"]
    exact, ordinary, fused = train(["method=F", "precision=fp32"], False), train(words, False), train(words, True)
    off = [
        sum(
            (a.float() - b).square().sum().item()
            for a, b in zip(found.gradients[0], exact.gradients[0], strict=True)
            if a is not None and b is not None
        )
        for found in (fused, ordinary)
    ]
    assert 0 < off[0] < 1.1 * off[1]


class Made(TorchDispatchMode):
    """The shapes of what operators make in memory that is not `held`."""

    def __init__(self, held: list[torch.Tensor | None]) -> None:
        super().__init__()
        self.held = {each.untyped_storage().data_ptr() for each in held if each is not None}
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        tensors = [each for each in tree_leaves(made) if isinstance(each, torch.Tensor)]
        self.shapes |= {tuple(each.shape) for each in tensors if each.untyped_storage().data_ptr() not in self.held}
        return made


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.SiLU(), nn.Linear(7, 3, bias=False), nn.LayerNorm(3))


def passes_of(model: nn.Module, accumulation: FusedAccumulation | None = None, hook: Any = nullcontext) -> None:
    for inputs in torch.arange(40.0).sin().view(2, 2, 2, 5):
        if accumulation:
            accumulation.begin_pass()
        with hook():
            loss = model(inputs).square().sum()
        loss.backward()


def gradients(model: nn.Module) -> list[torch.Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


@pytest.fixture
def expected(model: nn.Module) -> Callable[[], None]:
    """Compare with the gradients of ordinary layers."""
    passes_of(model)
    wanted = gradients(model)
    model.zero_grad()
    return lambda: torch.testing.assert_close(gradients(model), wanted)


@pytest.mark.parametrize("hook", [nullcontext, save_on_cpu])
def test_biases_and_saved_tensors_on_the_host_are_fine(
    model: nn.Module, expected: Callable[[], None], hook: Any
) -> None:
    accumulation = FusedAccumulation(model)
    passes_of(model, accumulation, hook)
    accumulation.end_step()
    expected()


@pytest.mark.parametrize("fused", [False, True])
def test_backward_makes_no_gradient_beside_the_sum(model: nn.Module, fused: bool) -> None:
    accumulation = FusedAccumulation(model) if fused else None
    passes_of(model, accumulation)
    if accumulation:
        accumulation.begin_pass()
    loss = model(torch.ones(2, 5)).square().sum()
    with Made([*model.parameters(), *gradients(model)]) as made:
        loss.backward()
    assert made.shapes.isdisjoint({(7, 5), (3, 7)}) == fused


def test_the_sum_is_the_optimizers_alone_once_the_step_has_ended(model: nn.Module) -> None:
    accumulation = FusedAccumulation(model)
    passes_of(model, accumulation)
    accumulation.end_step()
    assert [layer.into for layer in model if isinstance(layer, AccumulatingLinear)] == [None, None]


class Twice(nn.Module):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.layer, self.times = nn.Linear(5, 5), times

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            inputs = self.layer(inputs)
        return inputs * torch.ones((), requires_grad=True)


@pytest.mark.parametrize("times", [0, 2])
def test_a_layer_that_does_not_run_once_in_each_pass_is_an_error(times: int) -> None:
    model = Twice(times)
    accumulation = FusedAccumulation(model)
    passes_of(model, accumulation)
    with pytest.raises(ConfigError, match=f"{2 * times} products were added in a step and 2 were expected"):
        accumulation.end_step()


def test_layers_that_do_not_train_and_classes_of_others_are_left_alone() -> None:
    class Other(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), Other(2, 2), nn.Linear(2, 2))
    FusedAccumulation(model)
    assert [type(layer) for layer in model] == [nn.Linear, Other, AccumulatingLinear]
