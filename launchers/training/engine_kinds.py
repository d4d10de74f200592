"""What an engine's launcher has to build: a training step, called pass by pass or as a whole, and a look at its state."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn

from llmexp.measure.loop import Scheduled, Trainable


class Built(Protocol):
    """What an engine's launcher has built: its model as people wrote it, and a look at its state."""

    module: nn.Module
    vocab_size: int
    parameters: int
    trainable_parameters: int

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        """Tensors that hold parameters, gradients and optimizer states now, by kind; of the last also the moments alone.

        Where there are any: `scales` of quantised parameters, which stay on the device; `gathered`, whole parameters beside the rank's part of them.
        """

    def gradient_norm(self) -> float | None:
        """Norm of the whole model's gradient, asked for after the first step; None where the optimizer does not tell. All ranks have to ask."""

    def offloaded(self) -> frozenset[str]:
        """Kinds of state that the engine keeps on the host for the device's sake."""

    def what_ran(self) -> dict[str, Any]:
        """Optimizer class, backend and the like."""


class SteppingEngine(Built, Trainable, Protocol):
    """An engine that is called pass by pass."""


class SchedulingEngine(Built, Scheduled, Protocol):
    """An engine that orders the passes of a step itself."""


RankEngine = SteppingEngine | SchedulingEngine
