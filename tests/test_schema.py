from __future__ import annotations

import json

import pytest
from planning import make_plan

from llmexp.schema import DenseModel
from llmexp.schema.tagged import types_of
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.training_plan import TrainingPlan

SECTIONS = [types_of(info.annotation) for info in TrainingConfig.model_fields.values()]


def test_every_section_refuses_unknown_keys_and_coercion():
    sections = [section for types in SECTIONS for section in types]
    assert len(sections) >= 22
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
    assert DenseModel.model_validate(SHAPE).head_dim == 32
    assert DenseModel.model_validate(SHAPE | {"head_dim": 16}).head_dim == 16
    assert DenseModel.model_validate(SHAPE) == DenseModel.model_validate(SHAPE | {"head_dim": 32})


def test_types_of_one_section_say_what_they_are():
    tagged = [each for types in SECTIONS if len(types) > 1 for each in types]
    assert len({kind for each in tagged for kind in each.kinds}) == sum(len(each.kinds) for each in tagged) >= 12
    assert all(each.said for each in tagged)


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        ("data=synthetic", "SyntheticData DenseModel AdamW HereRuntime"),
        ("model=tiny-moe data=text optimizer=lion8bit", "TextData MixtralModel TargetOptimizer HereRuntime"),
        (
            "model=hf model.path=org/a data=hf data.path=org/b runtime=venv runtime.python=/x",
            "HfData HfModel AdamW InterpreterRuntime",
        ),
        (
            "task=finetune model=tiny model.architecture=qwen3 runtime=docker runtime.image=a",
            "InstructionsData DenseModel AdamW ContainerRuntime",
        ),
    ],
)
def test_a_plan_that_is_read_again_has_sections_of_the_same_types(words, kinds):
    plan = make_plan("hardware=cpu", *words.split())
    read = TrainingPlan.of(json.loads(plan.model_dump_json()))
    assert read == plan
    sections = (read.config.data, read.config.model, read.config.optimizer, read.config.runtime)
    assert " ".join(type(section).__name__ for section in sections) == kinds
