"""kernels.fused_projections: fewer products, with the losses, gradients and FLOPs of one product a projection."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import stepping
import torch
from flops_worker import uncounted
from planning import make_plan
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig

from llmexp.errors import ConfigError
from llmexp.launchers.models import assembly
from llmexp.launchers.models.fused_projections import by_projection, fuse_projections, rows_of
from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.training.saving import Saving

CPU, LAYERS, STEPS = torch.device("cpu"), 2, 2
FUSED = "kernels.fused_projections=true"
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
LLAMA = {"qkv_proj": LAYERS, "gate_up_proj": LAYERS}

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
]


class Products(TorchDispatchMode):
    """Counts the products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in PRODUCTS
        return func(*args, **(kwargs or {}))


def made(*words: str) -> Any:
    fixed = ["hardware=cpu", "engine=torch", "parallelism.dp=1", "model=tiny", f"model.num_layers={LAYERS}"]
    plan = make_plan(*fixed, "precision=fp32", "data.seq_len=32", "batch.micro=2", *words)
    assert plan.skip is None
    return plan


def train(*words: str) -> tuple[list[float], dict[str, Tensor], int, list[int], Any]:
    """Losses, the last step's weights by name, all FLOPs, the products of forward and backward, and what ran."""
    from llmexp.launchers.torch_native import worker  # DDP's optimizers take a second to import

    plan = made(*words, "optimizer=sgd", "optimizer.lr=0.5")
    training: Any = worker.build(plan, CPU)
    losses = []
    with FlopCounterMode(display=False, custom_mapping=uncounted()) as counter:
        for batches in islice(stepping.batches_of(plan, training, STEPS, CPU), STEPS):
            for batch in batches:
                with Products() as forward:
                    loss = training.forward(batch)
                with Products() as backward:
                    training.backward(loss)
                training.step()
                losses.append(loss.item())
    rows = rows_of(training.module)
    weights = {
        part: values
        for name, each in training.module.named_parameters()
        for part, values in by_projection(name, getattr(each, "full_tensor", lambda each=each: each)(), rows).items()
    }
    return losses, weights, counter.get_total_flops(), [forward.count, backward.count], training.what_ran()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["method=Naive"], LLAMA),
        (["method=F+R"], LLAMA),
        (["method=F+R", "memory.keep=products"], LLAMA),
        (["method=F", "memory.activation_offload=true"], LLAMA),
        (["method=F", "model.architecture=qwen3", "batch.accumulation=2"], LLAMA),
        (["memory.recompute_layers=1", "method=F+R+Z3"], LLAMA),
        # The experts' gate and up are one matrix already.
        (["method=F", "model=tiny-moe"], {"qkv_proj": LAYERS}),
    ],
)
@pytest.mark.usefixtures("alone")
def test_training_is_the_same_with_fewer_products(words: list[str], found: dict[str, int]) -> None:
    apart, fused = train(*words), train(FUSED, *words)
    assert fused[0] == pytest.approx(apart[0], rel=1e-6)
    assert fused[1].keys() == apart[1].keys()
    torch.testing.assert_close(fused[1], apart[1], rtol=1e-6, atol=1e-6)
    assert fused[2] == apart[2]
    assert fused[4]["fused_projections"] == found
    # Of three projections two products fewer, of two one; backward has two products for each, and R a third.
    fewer = sum((2 if name == "qkv_proj" else 1) * count for name, count in found.items())
    assert apart[3][0] - fused[3][0] == fewer
    again = fewer // (2 if "memory.recompute_layers=1" in words else 1) * ("R" in words[-1] and "keep" not in words[-1])
    assert apart[3][1] - fused[3][1] == 2 * fewer + again


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_what_is_compiled_trains_the_same() -> None:
    words = ["method=F+C", "model.num_layers=1"]
    apart, fused = train(*words), train(FUSED, *words)
    assert fused[0] == pytest.approx(apart[0], rel=1e-5)
    torch.testing.assert_close(fused[1], apart[1], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("alone")
def test_each_product_adds_to_the_gradients_of_earlier_passes() -> None:
    words = ["method=F", "batch.accumulation=2"]
    apart, fused = train(*words), train(*words, FUSED, "kernels.fused_accumulation=true")
    assert fused[0] == pytest.approx(apart[0], rel=1e-6)
    torch.testing.assert_close(fused[1], apart[1], rtol=1e-6, atol=1e-6)
    # Four matrices in each layer, and the head, in two passes.
    assert fused[4]["accumulated_products"] == 2 * (4 * LAYERS + 1)


def test_a_saved_model_has_the_names_and_values_that_transformers_gave(tmp_path: Path) -> None:
    checkpoints.write(tmp_path / "base", LlamaConfig(**checkpoints.SIZES))
    path = ("model=hf", f"model.path={tmp_path / 'base'}", "model.weights=pretrained", "task.save_model=true")
    plan = make_plan("hardware=cpu", "engine=torch", "precision=fp32", "data.seq_len=64", *path, FUSED)
    assert plan.skip is None
    model = assembly.seeded_model(plan, CPU)
    assert not any("q_proj" in name for name, _ in model.named_parameters())
    Saving(plan, Rank(0, 0, 1, tmp_path / "repeat.0"), model, CPU).save(["model"])
    base, saved = (load_file(tmp_path / of / "model.safetensors") for of in ("base", "repeat.0/model"))
    assert saved.keys() == base.keys()
    for name, values in saved.items():
        assert torch.equal(values, base[name]), name


def test_weights_have_the_values_of_their_own_names() -> None:
    apart, fused = (assembly.seeded_model(made(*words), CPU) for words in ((), (FUSED,)))
    expected, rows = dict(apart.named_parameters()), rows_of(fused)
    for name, values in fused.named_parameters():
        for part, own in by_projection(name, values, rows).items():
            assert torch.equal(own, expected[part]), part


class Twice(nn.Module):
    """Attention that asks for its values first, and for its keys of something else."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(4, 8), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, first: Tensor, second: Tensor) -> list[Tensor]:
        return [self.v_proj(first), self.k_proj(second), self.q_proj(first), self.v_proj(first)]


def test_projections_in_any_order_and_of_any_input_are_right() -> None:
    torch.manual_seed(0)
    attention, first, second = Twice(), torch.randn(3, 4), torch.randn(3, 4)
    model = nn.ModuleDict({"attention": attention})
    expected, weights = attention(first, second), dict(model.named_parameters())
    fuse_projections(model)
    with torch.no_grad():
        for name, each in model.named_parameters():
            each.copy_(torch.cat([weights[part] for part in rows_of(model)[name]]))
    torch.testing.assert_close(attention(first, second), expected)
    assert {name for name, _ in attention.named_parameters()} == {"qkv_proj.weight", "qkv_proj.bias"}


def test_a_model_without_such_projections_is_refused() -> None:
    with pytest.raises(ConfigError, match="Linear has no linear layers q_proj, k_proj and v_proj"):
        fuse_projections(nn.Linear(2, 2))
