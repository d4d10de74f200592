"""Averages gradients over replicas one by one, for an optimizer that updates in backward.

Each is averaged before the optimizer uses and drops it.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import distributed, nn


def average_in_backward(parameters: Iterable[nn.Parameter]) -> None:
    """Add hooks that average gradients; call this before the optimizer adds its own hooks.

    Backward reaches the parameters in the same order on all ranks.
    """
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(_average)


def _average(parameter: nn.Parameter) -> None:
    if parameter.grad is not None:
        parameter.grad /= distributed.get_world_size()
        distributed.all_reduce(parameter.grad)
