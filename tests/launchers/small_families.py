"""Families of transformers with experts, made small by keys."""

from __future__ import annotations

LAYERS = 2


def small(model: str, **fields: int | float | str) -> str:
    """A model of a family of transformers, in words."""
    sizes = {"vocab_size": 288, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    routed = {"moe_intermediate_size": 24, "num_experts_per_tok": 2}
    every = sizes | heads | routed | fields
    return " ".join([f"model={model}", *(f"model.config.{name}={value}" for name, value in every.items())])


QWEN = small("qwen3-30b-a3b", head_dim=16, num_experts=8)
LATENT = {"q_lora_rank": 20, "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14}
GROUPED = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4}
DEEPSEEK = small("deepseek-v3", **LATENT, **GROUPED)
