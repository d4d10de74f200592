from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from pydantic import TypeAdapter

from llmexp.inputs.shape import shape_of
from llmexp.schema import ModelConfig

CONF = Path(__file__).parents[2] / "conf" / "model"
# Those that are given by the fields of a config.json are in test_given_model.py.
NAMES = sorted(path.stem for path in CONF.glob("*.yaml") if path.stem != "hf" and "\nconfig:" not in path.read_text())
# As the published checkpoints count them; 125m, tiny and tiny-moe are this project's own shapes.
PARAMETERS = {
    "tiny": 857_216,
    "125m": 125_258_496,
    "1b": 1_100_048_384,
    "7b": 6_738_415_616,
    "13b": 13_015_864_320,
    "70b": 68_976_648_192,
    "llama-30b": 32_528_943_616,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "qwen3-8b": 8_190_735_360,
    "mixtral": 46_702_792_704,
    "tiny-moe": 2_444_416,
}


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_its_published_size(name):
    model = TypeAdapter(ModelConfig).validate_python(OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml")))
    shape = shape_of(model)
    assert model.name == name
    assert model.source
    assert shape is not None
    assert shape.parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("70b", "llama3-70b")])
def test_transformers_counts_the_same(name):
    """Holds the arithmetic to the code that is run: the model is built without memory and counted."""
    import torch
    from transformers import AutoModelForCausalLM

    from llmexp.launchers.models.building import configuration

    model = TypeAdapter(ModelConfig).validate_python(OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml")))
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(configuration(model))
    assert sum(parameter.numel() for parameter in built.parameters()) == PARAMETERS[name]
