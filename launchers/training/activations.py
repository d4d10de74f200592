"""Activation offload: host memory holds what autograd keeps from forward to backward."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.training_plan import TrainingPlan

# Pinned memory that no tensor is in, by dtype and shape.
Buffers = defaultdict[tuple[torch.dtype, torch.Size], list[torch.Tensor]]
# Tensors on their way to the host at a time: they are freed once they are there, and forward waits for the first of
# them where it would have more.
ON_THEIR_WAY = 4
# Tensors of earlier operators that come back while backward is at a later one.
AHEAD = 4


@dataclass(eq=False)
class KeptOnHost:
    """A tensor in host memory, its place in the order of saving, and on a GPU what its copy back is waited for by."""

    host: torch.Tensor
    device: torch.device
    place: int
    buffers: Buffers | None = None
    arrived: torch.cuda.Event | None = None
    back: torch.Tensor | None = None
    taken: bool = False

    def __del__(self) -> None:
        if self.buffers is not None:
            # All copies are in one stream: the next one into this memory comes after those that are under way.
            self.buffers[self.host.dtype, self.host.shape].append(self.host)


class OnHost(saved_tensors_hooks):
    """torch's save_on_cpu without the parameters, which are held anyway.

    On a GPU the copies run in a stream of their own beside the computation, the host waits for none of them, and its
    pinned memory is used again from step to step. It counts the bytes that the first forward pass moves.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._held = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._leaving: deque[tuple[torch.Tensor, torch.cuda.Event]] = deque()
        self._order: list[KeptOnHost] = []
        self._buffers: Buffers = defaultdict(list)
        self._counting = True
        self.moved_bytes = 0
        super().__init__(self._move, self._bring_back)

    def __enter__(self) -> None:
        for kept in self._order:
            if kept.back is not None and kept.arrived is not None:
                # Nobody took it, and its memory is the computation's.
                torch.cuda.current_stream().wait_event(kept.arrived)
        self._order.clear()
        super().__enter__()

    def __exit__(self, *ending: object) -> None:
        self._counting = False
        self._let_go(0)
        super().__exit__(*ending)

    def _move(self, tensor: torch.Tensor) -> KeptOnHost | torch.Tensor:
        if tensor.untyped_storage().data_ptr() in self._held:
            return tensor
        self.moved_bytes += tensor.nbytes if self._counting else 0
        if self._copies is None:
            return KeptOnHost(tensor.clone(), tensor.device, 0)
        kept = KeptOnHost(self._buffer(tensor), tensor.device, len(self._order), self._buffers)
        self._copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._copies):
            kept.host.copy_(tensor, non_blocking=True)
        self._leaving.append((tensor, self._copies.record_event()))
        self._let_go(ON_THEIR_WAY)
        self._order.append(kept)
        return kept

    def _buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        free = self._buffers[tensor.dtype, tensor.shape]
        if free:
            return free.pop()
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)

    def _let_go(self, left: int) -> None:
        """Free tensors on the device, the first ones first, once their copies are complete."""
        while len(self._leaving) > left:
            _, copied = self._leaving.popleft()
            # The memory goes back to the computation's stream, which may write to it only after this.
            torch.cuda.current_stream().wait_event(copied)

    def _bring_back(self, kept: KeptOnHost | torch.Tensor) -> torch.Tensor:
        if torch.is_tensor(kept):
            return kept
        if self._copies is None:
            return kept.host
        self._start(kept)
        self._start_near(kept)
        assert kept.back is not None
        assert kept.arrived is not None
        torch.cuda.current_stream().wait_event(kept.arrived)
        back, kept.back, kept.taken = kept.back, None, True
        return back

    def _start_near(self, kept: KeptOnHost) -> None:
        """Start what backward takes next: what the same operator saved after this, and some of the operators before."""
        place = kept.place
        if place >= len(self._order) or self._order[place] is not kept:
            return
        before = [each for each in self._order[max(0, place - 2 * AHEAD) : place] if not each.taken]
        for each in [*self._order[place + 1 : place + 1 + AHEAD], *before[-AHEAD:][::-1]]:
            if not each.taken:
                self._start(each)

    def _start(self, kept: KeptOnHost) -> None:
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


def moved(context: AbstractContextManager[Any]) -> WhatRan:
    """Say, for what_ran, how many bytes were moved."""
    return {"activation_offload_bytes": context.moved_bytes} if isinstance(context, OnHost) else {}
