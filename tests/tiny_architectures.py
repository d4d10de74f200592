"""transformers' configurations of all families that llmexp reads, of a few small layers."""

from __future__ import annotations

from typing import Any

BASE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ROUTED = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
GROUPED = {"num_hidden_layers": 3, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
# What differs from `BASE`, of families and of fields that readers take two ways.
TINY: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama biases": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "mistral": {"sliding_window": 4, "head_dim": 24},
    "phi3": {},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 4},
    "qwen3": {"head_dim": 24},
    "olmo2": {},
    "olmo3": {"num_hidden_layers": 4, "sliding_window": 4},
    "gemma3_text": {"head_dim": 24, "num_hidden_layers": 3, "sliding_window": 4, "sliding_window_pattern": 3},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"head_dim": 24, "num_experts": 6, "mlp_only_layers": [0]} | ROUTED,
    "gpt_oss": {"head_dim": 24, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 4},
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "q_lora_rank": 20,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 10,
        "qk_rope_head_dim": 6,
        "v_head_dim": 14,
        "n_shared_experts": 2,
    }
    | GROUPED
    | ROUTED,
    "deepseek_v3 whole queries": {
        "num_key_value_heads": 4,
        "q_lora_rank": None,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 10,
        "qk_rope_head_dim": 6,
        "v_head_dim": 14,
        "attention_bias": True,
    }
    | GROUPED
    | ROUTED,
    "glm4_moe": {"head_dim": 24, "use_qk_norm": True, "attention_bias": True, "n_shared_experts": 1} | GROUPED | ROUTED,
    "llama4_text": {
        "head_dim": 24,
        "num_hidden_layers": 4,
        "num_local_experts": 4,
        "intermediate_size_mlp": 72,
        "moe_layers": [1, 3],
        "attention_chunk_size": 4,
    },
    "qwen3_next": {
        "head_dim": 24,
        "num_hidden_layers": 4,
        "num_experts": 6,
        "shared_expert_intermediate_size": 20,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "mlp_only_layers": [1],
    }
    | ROUTED,
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 6, "n_groups": 2, "chunk_size": 8},
    "jamba": {
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "mamba_d_state": 6,
        "mamba_dt_rank": 5,
    },
}


def configured(case: str) -> Any:
    """transformers' configuration of a case."""
    from transformers import CONFIG_MAPPING

    family = case.split()[0]
    sizes = BASE | TINY[case]
    of_attention = ("intermediate_size", "num_attention_heads", "num_key_value_heads")
    return CONFIG_MAPPING[family](**{k: v for k, v in sizes.items() if family != "mamba2" or k not in of_attention})
