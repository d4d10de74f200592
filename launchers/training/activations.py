"""Activation offload: host memory holds what autograd keeps from forward to backward."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from llmexp.plan.training_plan import TrainingPlan


class OnHost(saved_tensors_hooks):
    """torch's save_on_cpu without the parameters, which are held anyway.

    It counts the bytes that the first forward pass moves.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._held = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
        self._pinned = device.type == "cuda"
        self._counting = True
        self.moved_bytes = 0
        super().__init__(self._move, self._bring_back)

    def __exit__(self, *ending: object) -> None:
        self._counting = False
        super().__exit__(*ending)

    def _move(self, tensor: torch.Tensor) -> tuple[torch.device, torch.Tensor] | torch.Tensor:
        if tensor.untyped_storage().data_ptr() in self._held:
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._pinned)
        host.copy_(tensor)
        self.moved_bytes += host.nbytes if self._counting else 0
        return tensor.device, host

    @staticmethod
    def _bring_back(kept: tuple[torch.device, torch.Tensor] | torch.Tensor) -> torch.Tensor:
        if torch.is_tensor(kept):
            return kept
        device, host = kept
        return host.to(device, non_blocking=host.is_pinned())


def around_forward(plan: TrainingPlan, module: nn.Module, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context of every forward pass, once the engine has placed the parameters."""
    return OnHost(module, device) if plan.config.memory.activation_offload else nullcontext()


def moved(context: AbstractContextManager[Any]) -> dict[str, int]:
    """Say, for what_ran, how many bytes were moved."""
    return {"activation_offload_bytes": context.moved_bytes} if isinstance(context, OnHost) else {}
