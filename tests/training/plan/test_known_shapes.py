"""A checkpoint's name leads to the model of the same shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.training.plan import known_shapes
from llmexp.training.plan.known_shapes import option_like

CONF = Path(__file__).parents[3] / "conf" / "model"


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("meta-llama/Llama-2-7b-hf", "7b"),
        ("/models/Meta-Llama-3-8B-Instruct/", "llama3-8b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "1b"),
        ("Qwen/Qwen3-80B", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", None),
        ("someone/qwen3-8bx", None),
    ],
)
def test_a_name_leads_to_the_model_of_its_shape(path: str, option: str | None) -> None:
    assert option_like(path) == option


def test_every_model_that_is_named_is_there() -> None:
    assert [name for name in known_shapes._OPTIONS.values() if not (CONF / f"{name}.yaml").exists()] == []
