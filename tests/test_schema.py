from __future__ import annotations

from llmexp.schema import ModelConfig, TrainingConfig


def test_every_section_refuses_unknown_keys_and_coercion():
    sections = [info.annotation for info in TrainingConfig.model_fields.values() if hasattr(info.annotation, "model_config")]
    assert len(sections) >= 12
    for section in sections:
        assert section.model_config["extra"] == "forbid"
        assert section.model_config["strict"] is True


SHAPE = {
    "name": "mine",
    "architecture": "llama",
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 344,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "max_positions": 64,
}


def test_heads_share_the_width_unless_their_size_is_given():
    assert ModelConfig.model_validate(SHAPE).head_dim == 32
    assert ModelConfig.model_validate(SHAPE | {"head_dim": 16}).head_dim == 16
    assert ModelConfig.model_validate(SHAPE) == ModelConfig.model_validate(SHAPE | {"head_dim": 32})
