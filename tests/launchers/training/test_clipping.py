"""Gradients are scaled as torch's clip_grad_norm_ scales them; their norm is wider than they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from llmexp.launchers.training.clipping import clip, gradients_of, norm_of


def clipped(parameters: list[nn.Parameter], largest: float) -> float:
    """The norm before."""
    gradients = gradients_of(parameters)
    norm = norm_of(gradients, None)
    clip(gradients, norm, largest)
    return float(norm)


def parameters(dtype: torch.dtype, sizes: tuple[int, ...] = (300, 4097)) -> list[nn.Parameter]:
    torch.manual_seed(0)
    made = [nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]
    for one in made:
        one.grad = torch.randn(one.shape).to(dtype)
    return [*made, nn.Parameter(torch.zeros(3, dtype=dtype))]


@pytest.mark.parametrize("largest", [1.0, 1e4])
def test_it_does_what_torch_does(largest: float) -> None:
    ours, theirs = parameters(torch.float32), parameters(torch.float32)
    norm, expected = clipped(ours, largest), nn.utils.clip_grad_norm_(theirs, largest)
    assert norm == pytest.approx(float(expected), rel=1e-6)
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        assert one.grad is not None
        assert torch.allclose(one.grad, other.grad, rtol=1e-6)


def test_the_norm_of_bf16_gradients_is_not_rounded_to_bf16() -> None:
    made = parameters(torch.bfloat16)
    exact = torch.cat([one.grad.double() for one in made[:2]]).norm()
    norm = clipped(made, 1.0)
    assert norm == pytest.approx(float(exact), rel=1e-6)
    assert torch.cat([one.grad.double() for one in made[:2]]).norm() == pytest.approx(1.0, rel=1e-3)
