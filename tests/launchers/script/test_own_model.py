"""A program's module against the configuration's model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planning import make_plan
from torch import nn

from llmexp.launchers.script.own_model import OwnModel, why_no_flops

IDS = torch.zeros(1, 4, dtype=torch.long)


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    return nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 8)).to(dtype)


@pytest.fixture
def plan(tmp_path: Path):
    (tmp_path / "train.py").touch()
    made = make_plan(
        "engine=script",
        f"engine.options.command={tmp_path / 'train.py'}",
        "model=tiny",
        "hardware=cpu",
        "precision=bf16_pure",
    )
    return made.model_copy(update={"parameters": 72, "trainable_parameters": 72})


def seen(module: nn.Module, autocast: bool = False) -> OwnModel:
    own = OwnModel(module)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        module(IDS)
    return own


@pytest.mark.parametrize(("dtype", "autocast"), [(torch.bfloat16, False), (torch.float32, True)])
def test_the_same_size_in_the_same_dtype_has_the_configurations_flops(plan, dtype: torch.dtype, autocast: bool):
    module = model(dtype)
    assert why_no_flops(plan, seen(module, autocast)) is None
    assert not module[1]._forward_pre_hooks


def test_what_differs_is_said(plan):
    assert why_no_flops(plan, None) == "the program has not said which model it trains: llmexp.hook.model(model)"
    assert (
        why_no_flops(plan, seen(model())) == "the program's matrix products are in fp32, precision=bf16_pure says bf16"
    )
    assert "in a dtype that was not seen" in (why_no_flops(plan, OwnModel(model())) or "")
    frozen = model(torch.bfloat16)
    frozen[0].requires_grad_(False)
    assert why_no_flops(plan, seen(frozen)) == "the program trains 40 of 72 parameters, model=tiny is 72 of 72"
    unknown = plan.model_copy(update={"parameters": None, "trainable_parameters": None})
    assert why_no_flops(unknown, seen(model())) == "the size of model=tiny is not known without building it"


def test_parameters_that_zero_3_has_taken_away_count_whole():
    module = nn.Linear(4, 8, bias=False)
    module.weight.ds_numel, module.weight.data = 32, torch.empty(0)
    assert OwnModel(module).parameters == 32
