"""The callback for Trainers as a Trainer calls it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from llmexp import hook

if TYPE_CHECKING:
    from llmexp.launchers.script.trainer_callback import StepCallback


class Heard:
    def __init__(self) -> None:
        self.steps: list[tuple[int, float]] = []
        self.models: list[nn.Module] = []

    def step(self, positions: int, loss: float) -> None:
        self.steps.append((positions, loss))

    def model(self, module: nn.Module) -> None:
        self.models.append(module)


class Model(nn.Module):
    def forward(self, input_ids=None, inputs_embeds=None, labels=None):
        return labels


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    listener = Heard()
    monkeypatch.setattr(hook, "_listener", None)
    hook.connect(listener)
    return listener


def begun(model: nn.Module, **arguments: object) -> StepCallback:
    from llmexp.launchers.script.trainer_callback import StepCallback  # 2 s for transformers' Trainer

    callback = StepCallback()
    callback.on_train_begin(
        SimpleNamespace(**({"logging_steps": 1, "logging_strategy": "steps"} | arguments)), None, None, model=model
    )
    return callback


def test_the_positions_of_a_step_are_those_of_its_training_passes(heard: Heard):
    model, ids = Model(), torch.zeros(2, 8, dtype=torch.long)
    callback = begun(model)
    model(input_ids=ids)
    model(inputs_embeds=torch.zeros(2, 8, 4), labels=ids)
    callback.on_log(None, None, None, {"loss": 2.5})
    model.eval()
    model(ids)
    callback.on_log(None, None, None, {"eval_loss": 2.0})
    model.train()
    model(ids)
    callback.on_log(None, None, None, {"loss": 2.25})
    assert heard.steps == [(32, 2.5), (16, 2.25)]
    assert heard.models == [model]


@pytest.mark.parametrize("arguments", [{"logging_steps": 500}, {"logging_strategy": "epoch"}])
def test_steps_that_would_not_be_logged_are_refused(heard: Heard, arguments: dict[str, object]):
    with pytest.raises(ValueError, match="set logging_strategy='steps' and logging_steps=1"):
        begun(Model(), **arguments)


def test_outside_of_a_measurement_it_leaves_the_trainer_alone():
    model = Model()
    callback = begun(model, logging_steps=500)
    model(input_ids=torch.zeros(2, 8))
    callback.on_log(None, None, None, {"loss": 2.5})
    assert not model._forward_pre_hooks
