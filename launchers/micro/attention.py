"""Causal attention, in three steps or by the flash kernel, with the functions that training takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from llmexp.launchers.attention.causal import flash, unfused
from llmexp.launchers.micro.case import Case, Place, differs
from llmexp.launchers.micro.compute import TOLERANCE
from llmexp.plan.micro_plan import MicroPoint
from llmexp.schema import BYTES_PER_ELEMENT

CHECKED = 128
KERNELS: dict[str, Callable[..., Tensor]] = {"flash": flash, "unfused": unfused}


def attention(point: MicroPoint, place: Place) -> Case:
    """Attend forward, or from kept outputs backward."""
    kernel, _, way = point.kind.rpartition("_")
    attend = KERNELS[kernel]
    sizes = point.sizes
    heads = sizes["heads"], sizes["kv_heads"], sizes["kv_heads"]
    shapes = [(sizes["batch"], each, sizes["seq_len"], sizes["head_dim"]) for each in heads]
    bytes_of_set = sum(torch.Size(shape).numel() for shape in shapes) * BYTES_PER_ELEMENT[point.dtype]
    sets = place.sets(lambda: [place.random(*shape, dtype=point.dtype) for shape in shapes], bytes_of_set)

    def wrong() -> str:
        # Of causal attention the first positions see only themselves.
        query, key, value = (part[:, :, :CHECKED].float() for part in sets[0])
        found = attend(*sets[0])[:, :, :CHECKED]
        return differs(found, unfused(query, key, value), TOLERANCE[point.dtype])

    calls = _backward if way == "backward" else _forward
    return Case([calls(attend, parts) for parts in sets], wrong, attend.__name__)


def _forward(attend: Callable[..., Tensor], parts: list[Tensor]) -> Callable[[], object]:
    def call() -> Tensor:
        with torch.no_grad():
            return attend(*parts)

    return call


def _backward(attend: Callable[..., Tensor], parts: list[Tensor]) -> Callable[[], object]:
    inputs = [part.requires_grad_() for part in parts]
    output = attend(*inputs)
    gradient = torch.randn_like(output)
    return partial(torch.autograd.grad, output, inputs, gradient, retain_graph=True)
