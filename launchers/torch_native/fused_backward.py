"""Replicas whose optimizer updates in backward: gradients are averaged one by one, before it takes them up and drops them."""

from __future__ import annotations

from collections.abc import Iterable

from torch import distributed, nn


def average_in_backward(parameters: Iterable[nn.Parameter]) -> None:
    """To be called before the optimizer puts in its own hooks; backward reaches the parameters in one order on all ranks."""
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(_average)


def _average(parameter: nn.Parameter) -> None:
    if parameter.grad is not None:
        parameter.grad /= distributed.get_world_size()
        distributed.all_reduce(parameter.grad)
