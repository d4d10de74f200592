from __future__ import annotations

from typing import Any

import pytest
import torch
from planning import make_plan
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from llmexp.errors import ConfigError
from llmexp.launchers.models import building
from llmexp.launchers.models.targets import load
from llmexp.launchers.models.weights import seeded


class Renamed(LlamaForCausalLM):
    pass


def halved(config: LlamaConfig, **options: Any) -> PreTrainedModel:
    config.num_hidden_layers //= 2
    return Renamed._from_config(config, **options)


@pytest.mark.parametrize(("target", "layers"), [(f"{__name__}.Renamed", 4), (f"{__name__}.halved", 2)])
def test_a_class_and_a_function_build_the_model_that_is_asked_for(target: str, layers: int) -> None:
    config = building.configuration(make_plan("hardware=cpu", f"model.target={target}").config.model)
    model = building.build(config, torch.bfloat16, "eager", target, device=torch.device("cpu"), weights=seeded(0))
    assert type(model).__name__ == "Renamed"
    assert (len(model.model.layers), model.dtype, model.config._attn_implementation) == (
        layers,
        torch.bfloat16,
        "eager",
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent.thing", "optimizer.target=absent.thing: No module named 'absent'"),
        (
            "torch.optim.Nothing",
            "optimizer.target=torch.optim.Nothing: module 'torch.optim' has no attribute 'Nothing'",
        ),
        ("torch.optim", "optimizer.target=torch.optim is a module, which cannot be called"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_key(path: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load("optimizer.target", path)
    assert str(raised.value) == message
