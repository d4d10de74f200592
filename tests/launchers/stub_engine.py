"""An engine of one weight, for what surrounds an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from llmexp.measure.batch import MicroBatch


class StubEngine:
    """Trains nothing, and calls `at_forward` in each of its steps."""

    vocab_size, parameters, trainable_parameters = 64, 1, 1

    def __init__(self, at_forward: Callable[[], None]) -> None:
        self.module: nn.Module = nn.Linear(1, 1)
        self._at_forward = at_forward

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        self._at_forward()
        loss: torch.Tensor = self.module(torch.ones(1)).sum()
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> None:
        self.module.zero_grad()

    def gradient_norm(self) -> float | None:
        return 5.0

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        return {"parameters": list(self.module.parameters()), "gradients": [], "optimizer": [], "moments": []}

    def offloaded(self) -> frozenset[str]:
        return frozenset()

    def what_ran(self) -> dict[str, Any]:
        return {}
