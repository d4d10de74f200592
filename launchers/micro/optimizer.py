"""The optimizer's step on the device or on the host."""

from __future__ import annotations

import torch

from llmexp.dtypes import SINGLE, format_of
from llmexp.launchers.micro.case import Case, CasePlace
from llmexp.launchers.micro.checks import differs, some, tolerance
from llmexp.micro.families.base import MicroPoint
from llmexp.micro.families.optimizer import ADAMW_BYTES_PER_PARAMETER

RATE, BETAS, EPSILON = 1e-3, (0.9, 0.999), 1e-8
MOST_NUMBERS, STEPS = 2**16, 2


def adamw(point: MicroPoint, place: CasePlace) -> Case:
    """Take a step of torch's fused AdamW on fp32 parameters, gradients and moments."""
    device = place.device if point.kind == "adamw_on_device" else torch.device("cpu")

    def make() -> tuple[torch.nn.Parameter, torch.optim.AdamW]:
        parameter = torch.nn.Parameter(torch.randn(point.sizes["parameters"], device=device))
        parameter.grad = torch.randn_like(parameter)
        optimizer = torch.optim.AdamW([parameter], lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=0.0, fused=True)
        optimizer.step()  # the first makes the moments
        return parameter, optimizer

    sets = place.sets(make, ADAMW_BYTES_PER_PARAMETER * point.sizes["parameters"])
    return Case([optimizer.step for _, optimizer in sets], lambda: _wrong_steps(*sets[0]), "fused")


def _wrong_steps(parameter: torch.nn.Parameter, optimizer: torch.optim.AdamW) -> str:
    """Take two steps with one gradient: each goes against it, as far as if there were no moments."""
    assert parameter.grad is not None
    few = some(len(parameter), MOST_NUMBERS)
    before, gradient = parameter.detach()[few].double(), parameter.grad[few].double()
    for _ in range(STEPS):
        optimizer.step()
    wanted = -STEPS * RATE * gradient / (gradient.abs() + EPSILON)
    # Each step rounds the parameter, which is larger than the step; 1 - beta is rounded as beta is.
    of_parameter = STEPS * format_of(SINGLE).unit_roundoff * float(before.norm() / wanted.norm())
    allowed = of_parameter + tolerance(SINGLE, roundings=1 / (1 - max(BETAS)))
    return differs(parameter.detach()[few].double() - before, wanted, allowed)
