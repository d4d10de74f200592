"""What a device holds of a model: every weight once over all cards, and the cache by kind of layer."""

from __future__ import annotations

from typing import Any

import pytest

from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.reading import read_architecture
from llmexp.serving.predict.held import Formats, held, kept_per_token, model_architecture
from tests.planning import make_plan

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
LATENT: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "q_lora_rank": 16,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}
WINDOWED = LLAMA | {"model_type": "mistral", "sliding_window": 32}


def layers(config: dict[str, Any]) -> Architecture:
    return read_architecture(config)


@pytest.mark.parametrize("config", [LLAMA, LATENT, WINDOWED])
def test_all_cards_together_hold_every_weight_once(config) -> None:
    architecture = layers(config)
    one, four = held(architecture), held(architecture, 4)
    assert one.weights_bytes == 2 * architecture.parameters
    assert 4 * four.weights_bytes == pytest.approx(one.weights_bytes)


def test_fewer_bits_take_fewer_bytes_but_for_embedding_and_head() -> None:
    architecture = layers(LLAMA)
    outside = 2 * architecture.parameters_outside_layers
    inside = architecture.parameters - architecture.parameters_outside_layers
    for name, each in (("bf16", 2), ("fp8", 1), ("int8", 1), ("int4", 4.25 / 8)):
        assert held(architecture, 1, Formats(name)).weights_bytes == pytest.approx(each * inside + outside)


def test_few_tokens_read_few_experts_and_many_read_all() -> None:
    experts = held(layers(LATENT))
    assert experts.read_bytes(1) < experts.read_bytes(4) < experts.read_bytes(1000)
    whole = experts.weights_bytes - 2 * (experts.outside - experts.head)
    assert experts.read_bytes(1000) == pytest.approx(whole, rel=1e-6)
    dense = held(layers(LLAMA))
    assert dense.read_bytes(1) == dense.read_bytes(1000)


def test_a_token_reads_the_experts_that_it_is_sent_to() -> None:
    experts = held(layers(LATENT))
    idle = experts.experts * (1 - 2 / 16)
    assert experts.read_bytes(1) == pytest.approx(2 * (experts.dense + experts.experts - idle + experts.head))


def test_the_cache_is_that_of_the_kind_of_layer() -> None:
    assert held(layers(LLAMA)).cache_bytes(100) == 4 * 2 * 2 * 8 * 100 * 2
    assert held(layers(LATENT)).cache_bytes(100) == 4 * (24 + 4) * 100 * 2
    assert held(layers(WINDOWED)).cache_bytes(100) == held(layers(WINDOWED)).cache_bytes(32)


def test_cards_share_heads_and_each_keeps_all_latents() -> None:
    grouped, latent = layers(LLAMA), layers(LATENT)
    assert held(grouped, 2).cache_bytes(100) == held(grouped).cache_bytes(100) / 2
    assert held(grouped, 8).cache_bytes(100) == held(grouped, 2).cache_bytes(100)
    assert held(latent, 8).cache_bytes(100) == held(latent).cache_bytes(100)


def test_bytes_of_a_token_are_known_where_they_do_not_depend_on_the_length() -> None:
    assert kept_per_token(layers(LLAMA), 100, 1, 2) == 4 * 2 * 2 * 8 * 2
    assert kept_per_token(layers(LLAMA), 100, 8, 2) == 4 * 2 * 8 * 8 * 2
    assert kept_per_token(layers(LATENT), 100, 4, 1) == 4 * 4 * 28
    assert kept_per_token(layers(WINDOWED), 100, 1, 2) is None


@pytest.mark.parametrize("model", ["7b", "llama3-8b", "mixtral", "qwen3-8b"])
def test_models_by_their_sizes_have_the_parameters_of_the_plan(model) -> None:
    plan = make_plan("task=serve", f"model={model}", "hardware=h200", "engine=vllm")
    whole = held(model_architecture(plan.config.model))
    assert plan.memory is not None
    assert whole.weights_bytes == plan.memory.device
