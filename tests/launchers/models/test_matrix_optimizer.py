from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from llmexp.errors import ConfigError
from llmexp.launchers.models.matrix_optimizer import MatricesAndRest, matrices_and_rest


class Layer(GradientCheckpointingLayer):
    def __init__(self, *parts: nn.Parameter) -> None:
        super().__init__()
        self.parts = nn.ParameterList(parts)


def tensor(*sizes: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(*sizes))


def test_matrices_of_layers_are_apart_from_embeddings_and_gains() -> None:
    matrix, gain, filters = tensor(4, 2), tensor(4), tensor(8, 1, 4)
    model = nn.Sequential(nn.Embedding(8, 4), Layer(matrix, gain, filters))
    matrices, rest = (group["params"] for group in matrices_and_rest(model, "muon"))
    assert matrices == [matrix]
    assert [each.shape for each in rest] == [(8, 4), (4,), (8, 1, 4)]


@pytest.mark.parametrize(
    ("layer", "why"),
    [(Layer(tensor(4)), "trains none"), (Layer(tensor(4, 4), tensor(2, 4, 4)), "trains stacks of them")],
)
def test_a_model_that_adamw_would_update_is_refused(layer: nn.Module, why: str) -> None:
    with pytest.raises(ConfigError, match=f"optimizer=muon .* {why}: set optimizer=adamw"):
        matrices_and_rest(nn.Sequential(nn.Linear(4, 4), layer), "muon")


def test_what_has_not_been_updated_is_not_counted() -> None:
    matrix, gain = tensor(4, 2), tensor(4)
    both = MatricesAndRest(
        [{"params": [matrix]}, {"params": [gain]}], partial(torch.optim.Muon, lr=0.1), torch.optim.AdamW
    )
    assert both.updated() == [0, 0]
    gain.grad = torch.ones(4)
    both.step()
    assert both.updated() == [0, 4]
    matrix.grad = torch.ones(4, 2)
    both.step()
    assert both.updated() == [8, 4]


def test_a_rate_that_is_set_is_the_rate_of_both() -> None:
    matrix, gain = tensor(4, 2), tensor(4)
    both = MatricesAndRest(
        [{"params": [matrix]}, {"params": [gain]}], partial(torch.optim.Muon, lr=0.1), torch.optim.AdamW
    )
    for group in both.param_groups:
        group["lr"] = 0.0
    matrix.grad, gain.grad = torch.ones(4, 2), torch.ones(4)
    both.step()
    assert (matrix.unique().tolist(), gain.unique().tolist()) == ([1.0], [1.0])
