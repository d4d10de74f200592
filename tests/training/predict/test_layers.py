"""A model's layers by kind of work, against the counts of shapes and architectures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.shape import shape_of
from llmexp.schema import ModelConfig
from llmexp.training.predict import unpredicted
from llmexp.training.predict.layers import layers_of, uncounted
from tests.inputs.test_published_sizes import DEEPSEEK_V3, QWEN3_MOE, QWEN3_NEXT
from tests.planning import make_plan

GEMMA = {
    "model_type": "gemma3_text",
    "vocab_size": 262144,
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 512,
}


def folder_of(config: dict, folder: Path) -> str:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return f"model.path={folder}"


def model(config: dict, folder: Path) -> ModelConfig:
    return make_plan("model=hf", folder_of(config, folder)).config.model


@pytest.mark.parametrize("name", ["7b", "mixtral", "qwen3-8b"])
def test_the_kinds_add_up_to_what_a_token_is_multiplied_with(name: str) -> None:
    chosen = make_plan(f"model={name}").config.model
    layers, shape = layers_of(chosen), shape_of(chosen)
    assert shape is not None
    assert layers.matrices + layers.expert_matrices == shape.active_linear_parameters
    assert bool(layers.expert_matrices) == (name == "mixtral")
    per_position = 2 * (layers.matrices + layers.expert_matrices + layers.head)
    assert 3 * (per_position + layers.attention_flops(1000)) == pytest.approx(shape.flops_per_token(1000))


@pytest.mark.parametrize("config", [QWEN3_MOE, DEEPSEEK_V3, GEMMA])
def test_other_families_add_up_too(config, tmp_path) -> None:
    chosen = model(config, tmp_path)
    layers, made = layers_of(chosen), architecture_of(chosen)
    per_position = 2 * (layers.matrices + layers.expert_matrices + layers.head)
    assert per_position == pytest.approx(made.forward_flops_per_position)
    assert layers.attention_flops(8192) == made.attention_flops(8192)
    assert layers.experts == config.get("num_experts", config.get("n_routed_experts", 0))


def test_latent_attention_sends_values_as_wide_as_keys(tmp_path) -> None:
    layers = layers_of(model(DEEPSEEK_V3, tmp_path))
    assert layers.keys_and_values == 2 * layers.queries == 2 * 61 * 128 * (128 + 64)


def test_a_window_makes_long_sequences_cheaper(tmp_path) -> None:
    (tmp_path / "all").mkdir()
    windows = layers_of(model(GEMMA, tmp_path))
    whole = layers_of(model(GEMMA | {"sliding_window": 32768}, tmp_path / "all"))
    assert windows.attention_flops(16384) < 0.5 * whole.attention_flops(16384)
    assert windows.attention_flops(512) == whole.attention_flops(512)


def test_layers_that_keep_a_state_have_no_rate(tmp_path) -> None:
    words = ("model=hf", folder_of(QWEN3_NEXT, tmp_path), "hardware=h100", "precision=bf16_mixed")
    plan = make_plan(*words, "method=F", "data.seq_len=512")
    assert plan.predicted is None
    assert unpredicted(plan) == "no rate of layers of gated delta net is known"
    with pytest.raises(ConfigError, match="gated delta net"):
        layers_of(plan.config.model)


def test_what_is_not_counted_is_said(tmp_path) -> None:
    chosen = model({"model_type": "unheard_of"}, tmp_path)
    assert uncounted(chosen).startswith(f"model={chosen.name} is not counted: config.json: model_type=unheard_of")
    assert uncounted(make_plan("model=7b").config.model) == ""


def test_a_folder_with_windows_or_latent_attention_is_predicted(tmp_path) -> None:
    # F sees whole sequences.
    for config, method in ((GEMMA, "Z3"), (QWEN3_MOE, "F+Z3")):
        words = ("hardware=h100", f"method={method}", "data.seq_len=4096")
        plan = make_plan("model=hf", folder_of(config, tmp_path), *words)
        assert plan.skip is None
        assert plan.predicted is not None, unpredicted(plan)
        peak = plan.config.hardware.peak_flops_per_s["bf16"]
        assert 0.01 * peak < plan.flops_per_token * plan.predicted.rate / 8 < 0.8 * peak
