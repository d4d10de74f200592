"""An optimizer that updates copies of bf16 parameters in a wider dtype, for engines that have none of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class MasterCopy(torch.optim.Optimizer):
    """Hands `make` the copies and, at each step, the gradients in their dtype; then rounds the copies back into the parameters."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | list[dict[str, Any]],
        dtype: torch.dtype,
        make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    ) -> None:
        super().__init__(parameters, {})
        self._parameters: list[nn.Parameter] = [
            parameter for group in self.param_groups for parameter in group["params"]
        ]
        self._copies = [nn.Parameter(parameter.detach().to(dtype)) for parameter in self._parameters]
        self.inner = make(self._copies)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Each gradient goes as its wider one comes, so that never both are whole."""
        for parameter, copy in zip(self._parameters, self._copies, strict=True):
            if parameter.grad is not None:
                copy.grad, parameter.grad = parameter.grad.to(copy.dtype), None
        self.inner.step()
        self.inner.zero_grad()
        torch._foreach_copy_([parameter.data for parameter in self._parameters], [copy.data for copy in self._copies])
