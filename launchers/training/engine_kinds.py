"""The interface that an engine's launcher builds: a training step, and a view of its state.

A step is called pass by pass or as a whole.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from llmexp.measure.loop import Scheduled, Trainable
from llmexp.record.what_ran import WhatRan


class Built(Protocol):
    """An engine that its launcher has built: the model as its author wrote it, and a view of its state."""

    module: nn.Module
    vocab_size: int
    parameters: int
    trainable_parameters: int

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        """Return, by kind, the tensors that now hold parameters, gradients, optimizer states and moments.

        The optimizer states include the moments. Where they exist, there are also `scales` of quantized parameters,
        which stay on the device, and `gathered`, whole parameters beside the rank's part of them.
        """

    def gradient_norm(self) -> float | None:
        """Return the norm of the whole model's gradient, after the first step.

        Returns None where the optimizer does not tell. All ranks have to call it.
        """

    def offloaded(self) -> frozenset[str]:
        """Return the kinds of state that the engine keeps on the host to save device memory."""

    def what_ran(self) -> WhatRan:
        """Return the optimizer class, the backend and similar facts."""


@runtime_checkable
class TellsUpdates(Protocol):
    """An engine whose learning rates can be set from step to step, and that tells the norms of its gradients."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the groups that hold a learning rate, first those of the optimizer that updates parameters."""

    def norm_of_step(self) -> torch.Tensor | float | None:
        """Return the norm of the whole model's gradient in the last step, before clipping; None if not computed."""


@runtime_checkable
class KeepsFiles(Protocol):
    """An engine that keeps states in files."""

    def file_bytes(self) -> dict[str, int]:
        """Return the bytes of this rank's files by kind of state."""

    def swap_buffers(self) -> list[torch.Tensor]:
        """Return the buffers in host memory through which states pass from and to the files."""

    def remove_files(self) -> None:
        """Remove this rank's files, at its end."""


class SteppingEngine(Built, Trainable, Protocol):
    """An engine that is called pass by pass."""


class SchedulingEngine(Built, Scheduled, Protocol):
    """An engine that orders the passes of a step itself."""


RankEngine = SteppingEngine | SchedulingEngine
