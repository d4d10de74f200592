"""Where megatron-core keeps training state, with and without its distributed optimizer. The one file that knows its attributes (0.15, 0.16)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from llmexp.launchers.training.optimizer_state import moments, not_of


def state_tensors(module: nn.Module, optimizer: Any) -> dict[str, list[torch.Tensor]]:
    """Tensors of this rank by kind. Call between backward and step for the gradients, after step for the rest."""
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
    """The optimizers of torch's kind inside Megatron's."""
    for part in parts(optimizer):
        if part.optimizer is not None:
            yield part.optimizer


def parts(optimizer: Any) -> list[Any]:
    """Megatron's optimizers, which it chains: one for all parameters but those of experts."""
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))
