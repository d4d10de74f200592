"""Finds the training state that megatron-core keeps, with and without its distributed optimizer.

Only this file knows its attributes (0.15, 0.16).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from llmexp.launchers.training.optimizer_state import moments, not_of


def state_tensors(module: nn.Module, optimizer: Any) -> dict[str, list[torch.Tensor]]:
    """Return the tensors of this rank by kind.

    Call it between backward and step for the gradients, after step for the rest.
    """
    parameters: list[Any] = list(module.parameters())
    inner = list(torch_optimizers(optimizer))
    updated = [parameter for each in inner for group in each.param_groups for parameter in group["params"]]
    held = [moment for each in inner for moment in moments(each)]
    return {
        "parameters": [parameter.data for parameter in parameters],
        "gradients": [parameter.main_grad for parameter in parameters],
        "optimizer": not_of(module, updated) + held,
        "moments": held,
    }


def torch_optimizers(optimizer: Any) -> Iterator[torch.optim.Optimizer]:
    """Yield the torch optimizers inside Megatron's."""
    for part in parts(optimizer):
        if part.optimizer is not None:
            yield part.optimizer


def parts(optimizer: Any) -> list[Any]:
    """Return Megatron's chained optimizers: one for all parameters but those of experts, and one for experts."""
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))
