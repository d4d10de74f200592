"""Activation offload: host memory holds what autograd keeps from forward to backward."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from llmexp.plan.training_plan import TrainingPlan

# Tensors on their way to the host at a time: they are freed once they are there, and forward waits for the first of
# them where it would have more.
ON_THEIR_WAY = 4


@dataclass(eq=False)
class Kept:
    """A tensor in host memory, and on a GPU what waits for its copies there and back."""

    host: torch.Tensor
    device: torch.device
    arrived: torch.cuda.Event | None = None
    back: torch.Tensor | None = None


class OnHost(saved_tensors_hooks):
    """torch's save_on_cpu without the parameters, which are held anyway.

    On a GPU the copies run in a stream of their own beside the computation, and the host waits for none of them. It
    counts the bytes that the first forward pass moves.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._held = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._leaving: deque[tuple[torch.Tensor, torch.cuda.Event]] = deque()
        self._order: list[Kept] = []
        self._counting = True
        self.moved_bytes = 0
        super().__init__(self._move, self._bring_back)

    def __enter__(self) -> None:
        self._order.clear()
        super().__enter__()

    def __exit__(self, *ending: object) -> None:
        self._counting = False
        self._let_go(0)
        super().__exit__(*ending)

    def _move(self, tensor: torch.Tensor) -> Kept | torch.Tensor:
        if tensor.untyped_storage().data_ptr() in self._held:
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._copies is not None)
        self.moved_bytes += host.nbytes if self._counting else 0
        kept = Kept(host, tensor.device)
        if self._copies is None:
            host.copy_(tensor)
            return kept
        self._copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._copies):
            host.copy_(tensor, non_blocking=True)
        self._leaving.append((tensor, self._copies.record_event()))
        self._let_go(ON_THEIR_WAY)
        self._order.append(kept)
        return kept

    def _let_go(self, left: int) -> None:
        """Free tensors on the device, the first ones first, once their copies are complete."""
        while len(self._leaving) > left:
            _, copied = self._leaving.popleft()
            # The memory goes back to the computation's stream, which may write to it only after this.
            torch.cuda.current_stream().wait_event(copied)

    def _bring_back(self, kept: Kept | torch.Tensor) -> torch.Tensor:
        if torch.is_tensor(kept):
            return kept
        if self._copies is None:
            return kept.host.to(kept.device)
        self._start(kept)
        # Backward takes what was kept last first: the one before comes meanwhile.
        while self._order and self._order.pop() is not kept:
            pass
        if self._order:
            self._start(self._order[-1])
        assert kept.back is not None
        assert kept.arrived is not None
        torch.cuda.current_stream().wait_event(kept.arrived)
        back, kept.back = kept.back, None
        return back

    def _start(self, kept: Kept) -> None:
        if kept.back is not None:
            return
        assert self._copies is not None
        # Its memory is the computation's, which frees it in its own order.
        kept.back = torch.empty(kept.host.shape, dtype=kept.host.dtype, device=kept.device)
        self._copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._copies):
            kept.back.copy_(kept.host, non_blocking=True)
        kept.arrived = self._copies.record_event()


def around_forward(plan: TrainingPlan, module: nn.Module, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context of every forward pass, once the engine has placed the parameters."""
    return OnHost(module, device) if plan.config.memory.activation_offload else nullcontext()


def moved(context: AbstractContextManager[Any]) -> dict[str, int]:
    """Say, for what_ran, how many bytes were moved."""
    return {"activation_offload_bytes": context.moved_bytes} if isinstance(context, OnHost) else {}
