"""What a server's cache keeps of a token, by the kinds of a checkpoint's layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from llmexp.inputs.architecture.reading import read_architecture
from llmexp.serving.engine import ServingSpec
from llmexp.serving.plan.served_model import CheckpointModel

HEADS = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
LATENTS = {
    "model_type": "deepseek_v3",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}


def spec(config: dict[str, Any] | None, **more: Any) -> ServingSpec:
    model = CheckpointModel(
        name="mine",
        architecture="mine",
        vocab_size=1000,
        num_layers=4,
        num_kv_heads=2,
        head_dim=8,
        max_positions=4096,
        parameters=1000,
        folder=Path("mine"),
        digest="",
        architecture_read=read_architecture(config) if config else None,
    )
    return ServingSpec(model=model, dtype="bf16", device="cuda", positions=1024, requests=1, is_checkpoint=True, **more)


def test_grouped_heads_keep_keys_and_values() -> None:
    for config in (HEADS, None):
        assert spec(config).kv_bytes_per_token == spec(config).kv_bytes_over_devices == 2 * 4 * 2 * 8 * 2
        assert spec(config, devices=8).kv_bytes_over_devices == 2 * 4 * 8 * 8 * 2


def test_latents_are_kept_in_the_place_of_heads_and_by_every_device() -> None:
    assert spec(LATENTS).kv_bytes_per_token == 4 * (24 + 4) * 2
    assert spec(LATENTS, devices=2).kv_bytes_over_devices == 2 * 4 * (24 + 4) * 2
    assert spec(LATENTS, knobs={"kv_dtype": "fp8"}).kv_bytes_over_devices == 4 * (24 + 4)


def test_a_window_keeps_less_of_a_long_request() -> None:
    windowed = spec(HEADS | {"model_type": "mistral", "sliding_window": 256})
    assert windowed.kv_bytes_per_token == 2 * 4 * 2 * 8 * 2 * 256 // 1024
    assert windowed.kv_bytes_over_devices is None
    short = replace(windowed, positions=128)
    assert short.kv_bytes_over_devices == short.kv_bytes_per_token == 2 * 4 * 2 * 8 * 2
