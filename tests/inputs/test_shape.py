from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.inputs.shape import shape_of
from llmexp.schema import HfModel


def of_path(path: Path | str) -> HfModel:
    return HfModel(name="mine", architecture="hf", path=str(path))


def test_flops_of_a_token_by_hand(plan):
    made = plan("model=7b", "data=synthetic")
    linear, head, attention = 32 * (4 * 4096**2 + 3 * 4096 * 11008), 32000 * 4096, 6 * 32 * 4096 * 350
    assert made.flops_per_token == 6 * (linear + head) + attention
    assert made.recomputed_flops_per_token == 0
    # Attention's two products forward, both halves of them; what a layer's last matrix makes of its input
    # backward does not need.
    last = 32 * 4096 * 11008
    assert (
        plan("model=7b", "data=synthetic", "method=R").recomputed_flops_per_token
        == 2 * (linear - last) + 2 * attention / 3
    )
    assert (
        plan("model=7b", "data=synthetic", "method=F+R").recomputed_flops_per_token
        == 2 * (linear - last) + attention / 3
    )
    assert (
        plan("model=7b", "data=synthetic", "method=R", "engine=megatron").recomputed_flops_per_token
        == 2 * linear + 2 * attention / 3
    )
    # Of RS the scores alone.
    assert plan("model=7b", "data=synthetic", "method=RS").recomputed_flops_per_token == attention / 3
    assert plan("model=7b", "data=synthetic", "method=Q").flops_per_token == 4 * linear + 6 * head + attention


def test_a_token_meets_two_experts_of_eight(plan):
    """Mistral AI's 12.9e9 active parameters (arXiv 2401.04088, section 2.1: 13B)."""
    made = plan("model=mixtral", "data=synthetic")
    idle, expert = 6, 32 * 3 * 4096 * 14336
    assert made.active_parameters == made.parameters - idle * expert == 12_879_925_248
    multiplied = made.active_parameters - 32000 * 4096 - 65 * 4096
    assert made.flops_per_token == 6 * multiplied + 6 * 32 * 4096 * 350
    assert (
        plan("model=mixtral", "data=synthetic", "method=R").recomputed_flops_per_token
        == 2 * (multiplied - 32000 * 4096) + 4 * 32 * 4096 * 350
    )
    assert plan("model=7b").active_parameters == plan("model=7b").parameters


def test_a_folder_with_experts_is_counted(tmp_path: Path, plan):
    sizes = {
        "vocab_size": 32,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    experts = {"num_local_experts": 4, "num_experts_per_tok": 1}
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["MixtralForCausalLM"], **sizes, **experts}))
    shape = shape_of(of_path(tmp_path))
    assert shape is not None
    assert shape.parameters == 2 * (4 * 8 * 8 + 4 * 8 + 4 * 3 * 8 * 16 + 2 * 8) + 8 + 2 * 32 * 8
    assert shape.parameters - shape.active_parameters == 2 * 3 * 3 * 8 * 16


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_of_transformers_is_counted(tied, tmp_path: Path):
    sizes = {
        "vocab_size": 32,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": tied, **sizes})
    )
    shape = shape_of(of_path(tmp_path))
    assert shape is not None
    assert shape.parameters == 2 * (4 * 8 * 8 + 3 * 8 * 16 + 2 * 8) + 8 + (1 if tied else 2) * 32 * 8


def test_other_architectures_and_hub_names_are_counted_when_built(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"]}))
    assert shape_of(of_path(tmp_path)) is None
    assert shape_of(of_path("someone/some-model")) is None


def test_a_folder_that_is_none_is_said_at_once(tmp_path: Path):
    with pytest.raises(ConfigError, match="no such folder"):
        shape_of(of_path(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        shape_of(of_path(tmp_path))
