"""Models of conf/model that are given by fields of a config.json, made small by keys."""

from __future__ import annotations

VOCABULARY = 512
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2}
HEADS = {"intermediate_size": 80, "num_attention_heads": 4, "num_key_value_heads": 2}
ROUTED = {"moe_intermediate_size": 24, "num_experts_per_tok": 2}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
LATENT = {"q_lora_rank": 20, "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14}
GROUPED = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
GIVEN = {
    "qwen3-30b-a3b": SMALL | HEADS | ROUTED | {"head_dim": 16, "num_experts": 6},
    "qwen3-next-80b-a3b": SMALL
    | HEADS
    | ROUTED
    | LINEAR
    | {"num_hidden_layers": 4, "head_dim": 16, "num_experts": 6, "shared_expert_intermediate_size": 24},
    "deepseek-v3": SMALL | HEADS | ROUTED | LATENT | GROUPED | {"num_key_value_heads": 4},
    "gpt-oss-20b": SMALL | HEADS | {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma3-1b": SMALL | HEADS | {"head_dim": 16, "query_pre_attn_scalar": 16},
    "olmo3-7b": SMALL | HEADS,
    "mamba2-2.7b": SMALL | {"num_heads": 8, "head_dim": 16, "state_size": 16},
}
