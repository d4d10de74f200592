from __future__ import annotations

import weakref
from pathlib import Path

import pytest
import torch
from planning import make_plan
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, PreTrainedModel

from llmexp.inputs.shape import shape_of
from llmexp.launchers.models import building
from llmexp.launchers.models.quantize import quantized_linear
from llmexp.launchers.models.seeding import WEIGHT_STD
from llmexp.launchers.models.weights import seeded

CPU = torch.device("cpu")


def build(
    *overrides: str, dtype: torch.dtype = torch.float32, seed: int = 0, quantization: str | None = None
) -> PreTrainedModel:
    config = building.configuration(make_plan("hardware=cpu", *overrides).config.model)
    return building.build(config, dtype, "eager", device=CPU, weights=seeded(seed), quantization=quantization)


@pytest.mark.parametrize(
    "overrides",
    [(), ("model.tie_embeddings=true",), ("model.architecture=qwen3",), ("model.head_dim=64",), ("model=tiny-moe",)],
)
def test_the_planners_arithmetic_counts_what_transformers_builds(overrides: tuple[str, ...]) -> None:
    shape = shape_of(make_plan("hardware=cpu", *overrides).config.model)
    assert shape is not None
    assert shape.parameters == sum(parameter.numel() for parameter in build(*overrides).parameters())


def test_weights_depend_on_seed_and_name_alone() -> None:
    first, again, other, bf16 = build(), build(), build(seed=1), build(dtype=torch.bfloat16)
    deeper = dict(build("model.num_layers=6").named_parameters())
    for name, weight in first.named_parameters():
        assert torch.equal(weight, again.get_parameter(name))
        assert torch.equal(weight, deeper[name])
        assert torch.equal(weight.bfloat16(), bf16.get_parameter(name))
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
    assert not torch.equal(first.model.layers[0].mlp.up_proj.weight, first.model.layers[1].mlp.up_proj.weight)
    assert first.lm_head.weight.std().item() == pytest.approx(WEIGHT_STD, rel=0.02)


@pytest.mark.parametrize("trained", [True, False])
def test_the_planners_flops_are_those_that_torch_counts(trained: bool) -> None:
    ids = torch.randint(257, (2, 64))
    shape = shape_of(make_plan("hardware=cpu").config.model)
    assert shape is not None
    model = build()
    for layer in model.model.layers:
        for linear in (module for module in layer.modules() if isinstance(module, nn.Linear)):
            linear.requires_grad_(trained)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()
    # Eager attention computes the whole square, of which the model needs the causal half.
    other_half = 6 * shape.num_layers * shape.num_heads * shape.head_dim * 64
    expected = shape.flops_per_token(64, linear_trained=trained) + other_half
    # transformers 5.0 computes the rotary frequencies by a product, too.
    assert counter.get_total_flops() / ids.numel() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("experts_per_token", [1, 2, 4])
def test_the_planners_flops_of_experts_are_those_of_the_ones_that_a_token_goes_through(experts_per_token: int) -> None:
    words = ("model=tiny-moe", f"model.experts_per_token={experts_per_token}")
    ids, plan, model = torch.randint(257, (2, 64)), make_plan("hardware=cpu", *words, "data.seq_len=64"), build(*words)
    # torch counts no grouped products.
    model.set_experts_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()
    sizes = plan.config.model
    other_half = 6 * sizes.num_layers * sizes.num_heads * sizes.head_dim * 64
    assert counter.get_total_flops() / ids.numel() == pytest.approx(plan.flops_per_token + other_half, rel=1e-5)


def test_an_expert_of_a_stack_is_seeded_by_its_own_name() -> None:
    few, many = (build("model=tiny-moe", f"model.num_experts={count}").model.layers[1].mlp.experts for count in (2, 4))
    for name, stack in few.named_parameters():
        assert torch.equal(stack, many.get_parameter(name)[:2])
        assert not torch.equal(stack[0], stack[1])


def test_tied_embeddings_stay_one_tensor() -> None:
    model = build("model.tie_embeddings=true")
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_quantized_weights_are_near_the_seeded_ones() -> None:
    plain, quantized = build(), build(quantization="nf4")
    inputs = torch.randn(4, 128)
    expected, got = plain.model.layers[0].mlp.up_proj(inputs), quantized.model.layers[0].mlp.up_proj(inputs)
    assert not torch.equal(expected, got)
    assert (expected - got).norm() < 0.15 * expected.norm()
    assert isinstance(quantized.lm_head, nn.Linear)
    assert quantized.lm_head.weight.requires_grad


def test_a_layer_is_let_go_when_it_is_quantized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the whole model in bf16 lies beside the 4-bit one until the last layer is done."""
    replaced: list[weakref.ref[nn.Module]] = []
    most_alive = 0

    def watched(linear: nn.Linear, quantization: str) -> nn.Module:
        nonlocal most_alive
        replaced.append(weakref.ref(linear))
        most_alive = max(most_alive, sum(layer() is not None for layer in replaced))
        return quantized_linear(linear, quantization)

    monkeypatch.setattr(building, "quantized_linear", watched)
    build(quantization="nf4")
    assert len(replaced) == 4 * 7
    # The one that is being replaced, and the one before it, which the loop still holds.
    assert most_alive <= 2


def test_any_causal_model_of_transformers_builds_from_its_configuration(tmp_path: Path) -> None:
    GPT2Config(
        vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=64, architectures=["GPT2LMHeadModel"]
    ).save_pretrained(tmp_path)
    model = build("model=hf", f"model.path={tmp_path}")
    ids = torch.randint(300, (2, 16))
    loss = model(input_ids=ids, labels=ids).loss
    assert type(model).__name__ == "GPT2LMHeadModel"
    assert loss.item() == pytest.approx(torch.tensor(300.0).log().item(), abs=0.5)


def test_rotary_frequencies_survive_a_cast() -> None:
    model = build()
    exact = model.model.rotary_emb.inv_freq.clone()
    buffers = building.ExactBuffers(model)
    model.bfloat16()
    assert not torch.equal(model.model.rotary_emb.inv_freq.float(), exact)
    buffers.restore(CPU)
    assert torch.equal(model.model.rotary_emb.inv_freq, exact)
