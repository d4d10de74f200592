"""An optimizer that updates copies of bf16 parameters in a wider dtype, for engines without their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class MasterCopy(torch.optim.Optimizer):
    """An optimizer of copies, which `make` builds: it updates the copies, then rounds them into the parameters.

    At each step it gets the gradients in the copies' dtype.
    """

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
        """Update the copies; each gradient is dropped once it is converted, so that never both are whole."""
        for parameter, copy in zip(self._parameters, self._copies, strict=True):
            if parameter.grad is not None:
                copy.grad, parameter.grad = parameter.grad.to(copy.dtype), None
        self.inner.step()
        self.inner.zero_grad()
        torch._foreach_copy_([parameter.data for parameter in self._parameters], [copy.data for copy in self._copies])
