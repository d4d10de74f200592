from __future__ import annotations

from llmexp.schema import RunConfig


def test_every_section_refuses_unknown_keys_and_coercion():
    sections = [info.annotation for info in RunConfig.model_fields.values() if hasattr(info.annotation, "model_config")]
    assert len(sections) >= 12
    for section in sections:
        assert section.model_config["extra"] == "forbid"
        assert section.model_config["strict"] is True
