"""The counts of real models against those that their makers publish."""

from __future__ import annotations

from typing import Any

import pytest

from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.reading import read_architecture

LLAMA = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_nextn_predict_layers": 1,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
}
# As the file has it: what is the default of transformers' class is left out.
GEMMA3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"model_type": "siglip_vision_model"},
}
OLMO3 = {
    "model_type": "olmo3",
    "vocab_size": 100278,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
}
# d_model=2560, n_layer=64, a vocabulary padded to 50288, and the defaults of mamba_ssm's Mamba2.
MAMBA2 = {
    "model_type": "mamba2",
    "vocab_size": 50288,
    "hidden_size": 2560,
    "num_hidden_layers": 64,
    "num_heads": 80,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 1,
    "tie_word_embeddings": True,
}
GLM_4_5 = {
    "model_type": "glm4_moe",
    "vocab_size": 151552,
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_hidden_layers": 92,
    "first_k_dense_replace": 3,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attention_bias": True,
    "use_qk_norm": True,
    "n_routed_experts": 160,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
}


def multiplied(made: Architecture) -> int:
    """The active parameters without the embedding's, as most makers count them."""
    return made.active_parameters - made.embedding_parameters


@pytest.mark.parametrize(
    ("config", "parameters", "active"),
    [
        # arXiv 2407.21783; counted in conf/model/llama3-8b.yaml too.
        pytest.param(LLAMA, 8.03e9, None, id="Llama-3.1-8B"),
        # arXiv 2505.09388, table 2, and the checkpoint's page.
        pytest.param(QWEN3_MOE, 30.53e9, 3.35e9, id="Qwen3-30B-A3B"),
        # The checkpoint of Qwen3-Coder-Next, the same architecture, has 79,674,391,296 elements.
        pytest.param(QWEN3_NEXT, 79_674_391_296, 3_874_929_408, id="Qwen3-Next-80B-A3B"),
        # arXiv 2412.19437, abstract: 671B, of which 37B.
        pytest.param(DEEPSEEK_V3, 671e9, None, id="DeepSeek-V3"),
        # arXiv 2508.10925, table 1: 20.91B.
        pytest.param(GPT_OSS, 20.91e9, None, id="gpt-oss-20b"),
        # arXiv 2503.19786, table 1: 675M of the embedding and 3,209M others.
        pytest.param(GEMMA3, 3.884e9, None, id="Gemma-3-4B, its text model"),
        # The model card: 7B, as OLMo 2 7B (arXiv 2501.00656) has with another vocabulary: 7.3e9.
        pytest.param(OLMO3, 7.30e9, None, id="OLMo-3-7B"),
        # arXiv 2405.21060, table 10.
        pytest.param(MAMBA2, 2.7e9, None, id="Mamba-2-2.7B"),
    ],
)
def test_a_real_model_has_its_published_size(config: dict[str, Any], parameters, active):
    made = read_architecture(config)
    assert made.parameters == pytest.approx(parameters, rel=0.01)
    assert made.active_parameters == pytest.approx(active or made.active_parameters, rel=0.01)


@pytest.mark.parametrize(
    ("config", "active", "rel"),
    [
        # 37B (arXiv 2412.19437), rounded; 3.61B (arXiv 2508.10925, table 1), which leaves the embedding out.
        pytest.param(DEEPSEEK_V3, 37e9, 0.02, id="DeepSeek-V3"),
        pytest.param(GPT_OSS, 3.61e9, 0.01, id="gpt-oss-20b"),
    ],
)
def test_a_token_is_multiplied_with_the_published_part(config: dict[str, Any], active, rel):
    assert multiplied(read_architecture(config)) == pytest.approx(active, rel=rel)


def test_glm_has_its_published_size_in_layers():
    """arXiv 2508.06471, table 1: 355B, 32B of them active, without embedding and head, with one more sparse layer."""
    made = read_architecture(GLM_4_5)
    _, more = made.runs[-1]
    assert made.parameters - made.parameters_outside_layers + more.parameters == pytest.approx(355e9, rel=0.01)
    assert made.active_parameters - made.parameters_outside_layers == pytest.approx(32e9, rel=0.01)


def test_a_text_model_inside_says_what_is_beside_it():
    made = read_architecture(GEMMA3)
    assert (made.family, made.besides) == ("gemma3_text", "its vision tower")
    assert read_architecture(GEMMA3["text_config"]).besides == ""  # type: ignore[arg-type]


def test_layers_are_said_by_kind():
    made = read_architecture(QWEN3_NEXT)
    assert made.words == (
        "36 x gated delta net, 10 of 512 experts + a shared one; 12 x attention, 10 of 512 experts + a shared one"
    )
    assert read_architecture(GPT_OSS).words.startswith("12 x sliding attention within 128, 4 of 32 experts; 12 x att")


def test_what_decoding_keeps_for_a_sequence():
    """By hand: keys and values, latents, windows that are full, and states that do not grow."""
    assert read_architecture(LLAMA).cache_elements(1000) == 32 * 2 * 8 * 128 * 1000
    assert read_architecture(DEEPSEEK_V3).cache_elements(1000) == 61 * (512 + 64) * 1000
    assert read_architecture(GPT_OSS).cache_elements(1000) == 12 * 2 * 8 * 64 * (128 + 1000)
    state = 36 * (32 * 128 * 128 + 4 * (2 * 16 * 128 + 32 * 128))
    assert read_architecture(QWEN3_NEXT).cache_elements(1000) == state + 12 * 2 * 2 * 256 * 1000
    mamba = read_architecture(MAMBA2)
    assert mamba.cache_elements(1) == mamba.cache_elements(10**6) == 64 * (5120 * 128 + 4 * (5120 + 2 * 128))
