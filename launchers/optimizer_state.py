"""What an optimizer of torch's kind holds besides the model's own parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def not_of(module: nn.Module, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Those that are copies, not the module's own memory."""
    own = {parameter.untyped_storage().data_ptr() for parameter in map(local, module.parameters())}
    return [tensor for tensor in map(local, tensors) if tensor.untyped_storage().data_ptr() not in own]


def moments(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The state tensors; step counts left out."""
    # AdaLOMO of pytorch_optimizer keeps its own beside torch's state.
    beside = [getattr(optimizer, name, {}) for name in ("exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col")]
    states = [*optimizer.state.values(), *beside]
    return [local(value) for state in states for value in state.values() if torch.is_tensor(value) and value.dim() > 0]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part, of a partitioned one too."""
    part: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return part.detach()
