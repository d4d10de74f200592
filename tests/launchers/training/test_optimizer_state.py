"""What an optimizer's own state says: the bytes of its moments, and the norm of the first gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from llmexp.launchers.training.optimizer_state import first_gradient_norm, moments

ROWS, COLUMNS = 6, 4


def stepped(kind: type[torch.optim.Optimizer]) -> tuple[torch.optim.Optimizer, nn.Parameter]:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(ROWS, COLUMNS))
    made = kind([weight], lr=0.1)
    (weight * torch.arange(1.0, COLUMNS + 1)).sum().backward()
    made.step()
    return made, weight


@pytest.mark.usefixtures("alone")
def test_adamw_tells_the_norm_of_its_first_gradient() -> None:
    made, weight = stepped(torch.optim.AdamW)
    assert first_gradient_norm(made, weight.numel()) == pytest.approx(float(weight.grad.norm()))
    assert sum(each.numel() for each in moments(made)) == 2 * ROWS * COLUMNS


@pytest.mark.usefixtures("alone")
def test_soap_tells_none_and_keeps_two_squares_a_side() -> None:
    made, weight = stepped(pytest.importorskip("pytorch_optimizer").SOAP)
    assert first_gradient_norm(made, weight.numel()) is None
    assert sum(each.numel() for each in moments(made)) == 2 * (ROWS * COLUMNS + ROWS**2 + COLUMNS**2)
