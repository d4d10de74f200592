"""The counts of real models against those that their makers publish."""

from __future__ import annotations

from typing import Any

import pytest
from published_sizes import (
    DEEPSEEK_V3,
    GEMMA3,
    GLM_4_5,
    GPT_OSS,
    LLAMA,
    MAMBA2,
    OLMO3,
    QWEN3_MOE,
    QWEN3_NEXT,
)

from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.reading import read_architecture


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
