"""Causal attention, in three steps or by the flash kernel, with the functions that training takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llmexp.dtypes import bytes_of
from llmexp.errors import ConfigError
from llmexp.launchers.attention.causal import flash, unfused
from llmexp.launchers.attention.fused import restore, sdpa_of
from llmexp.launchers.micro.attention_check import wrong_gradients, wrong_result
from llmexp.launchers.micro.case import Case, CasePlace
from llmexp.launchers.micro.checks import some
from llmexp.micro.families.base import MicroPoint

Attend = Callable[..., Tensor]
KERNELS: dict[str, Attend] = {"flash": flash, "unfused": unfused}


def attend_by(kernel: str) -> tuple[Attend, str]:
    """Return the attention of a kernel, and what runs in its name; raises RuntimeError where it is not there."""
    restore()
    if kernel in KERNELS:
        return KERNELS[kernel], KERNELS[kernel].__name__
    try:
        return sdpa_of(kernel)
    except ConfigError as error:
        raise RuntimeError(str(error)) from None


@dataclass(frozen=True)
class _Forward:
    """Attention of query, key and value."""

    attend: Attend
    parts: list[Tensor]

    def __call__(self) -> Tensor:
        with torch.no_grad():
            return self.attend(*self.parts)

    def wrong(self, dtype: str) -> str:
        """Say what is wrong with the result in rows chosen at random."""
        return wrong_result(self.parts, self(), some(self.parts[0].shape[2]), dtype)


@dataclass(frozen=True)
class _Backward:
    """The gradients of query, key and value from that of a result, which was computed before."""

    parts: list[Tensor]
    result: Tensor
    gradient: Tensor

    @classmethod
    def of(cls, attend: Attend, parts: list[Tensor]) -> _Backward:
        """Compute the result."""
        inputs = [part.requires_grad_() for part in parts]
        result = attend(*inputs)
        return cls(inputs, result, torch.randn_like(result))

    def __call__(self) -> Sequence[Tensor]:
        return torch.autograd.grad(self.result, self.parts, self.gradient, retain_graph=True)

    def wrong(self, dtype: str) -> str:
        """Say what is wrong with the gradients.

        Where only some rows of the result have a gradient, every row of the inputs' gradients follows from these few.
        """
        rows = some(self.gradient.shape[2])
        few = torch.randn_like(self.gradient[:, :, rows])
        self.gradient.zero_()[:, :, rows] = few
        problem = wrong_gradients(self.parts, self(), rows, few, dtype)
        self.gradient.normal_()
        return problem


def attention(point: MicroPoint, place: CasePlace) -> Case:
    """Attend forward, or from kept outputs backward."""
    kernel, _, way = point.kind.rpartition("_")
    attend, what_ran = attend_by(kernel)
    sizes = point.sizes
    heads = sizes["heads"], sizes["kv_heads"], sizes["kv_heads"]
    shapes = [(sizes["batch"], each, sizes["seq_len"], sizes["head_dim"]) for each in heads]
    bytes_of_set = sum(torch.Size(shape).numel() for shape in shapes) * bytes_of(point.dtype)
    sets = place.sets(lambda: [place.random(*shape, dtype=point.dtype) for shape in shapes], bytes_of_set)
    make = _Backward.of if way == "backward" else _Forward
    calls = [make(attend, parts) for parts in sets]
    return Case(calls, lambda: calls[0].wrong(point.dtype), what_ran)
