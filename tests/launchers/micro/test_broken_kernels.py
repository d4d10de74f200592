"""A kernel that computes something else than it should is no measurement: each fault here must be noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from llmexp.launchers.attention.causal import flash, unfused
from llmexp.launchers.micro import attention, operators
from llmexp.launchers.micro.case import CasePlace
from llmexp.launchers.micro.worker import maker
from llmexp.micro.families.base import MicroPoint
from llmexp.registry import get_family

Break = Callable[[pytest.MonkeyPatch], None]
HEADS = {"batch": 2, "heads": 8, "kv_heads": 4, "seq_len": 192, "head_dim": 32}
GEMM = MicroPoint(family="gemm", kind="gemm", dtype="fp32", sizes={"m": 64, "n": 96, "k": 128})
ROPE = {"tokens": 64, "heads": 4, "kv_heads": 2, "head_dim": 16}
TRIAD = MicroPoint(family="memory", kind="triad", sizes={"bytes": 2**20})
ADAMW = MicroPoint(family="optimizer", kind="adamw_on_device", dtype="fp32", sizes={"parameters": 5000})


def operator(kind: str, dtype: str = "fp32", **sizes: int) -> MicroPoint:
    return MicroPoint(family="operators", kind=kind, dtype=dtype, sizes=sizes)


def attending(kind: str, dtype: str = "fp32") -> MicroPoint:
    return MicroPoint(family="attention", kind=kind, dtype=dtype, sizes=HEADS)


def verdict(point: MicroPoint, folder: Path) -> str:
    torch.manual_seed(0)
    make = maker(get_family(point.family))
    return make(point, CasePlace(torch.device("cpu"), 0, 1, 0, folder)).wrong()


class Scaled(torch.autograd.Function):
    """The identity, whose gradient is too large by a twentieth part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 1.05


def gradient_of(place: int) -> Break:
    """Break the gradient of the query, the key or the value."""

    def attend(*parts: Tensor) -> Tensor:
        broken = [Scaled.apply(part) if number == place else part for number, part in enumerate(parts)]
        return flash(*broken)

    return lambda patch: patch.setitem(attention.KERNELS, "flash", attend)


def zeros_from(row: int) -> Break:
    """Let all rows of attention's result from this one on be zero."""

    def attend(*parts: Tensor) -> Tensor:
        result = unfused(*parts)
        result[:, :, row:] = 0
        return result

    return lambda patch: patch.setitem(attention.KERNELS, "unfused", attend)


def other_heads(patch: pytest.MonkeyPatch) -> None:
    """Let queries attend to the keys of the next heads."""
    patch.setitem(attention.KERNELS, "unfused", lambda query, *others: unfused(query, *(x.roll(1, 1) for x in others)))


def acausal(patch: pytest.MonkeyPatch) -> None:
    """Let queries attend to all keys."""
    patch.setattr(operators.torch.Tensor, "triu", lambda mask, _: torch.zeros_like(mask))


def product(change: Callable[[Tensor], Tensor]) -> Break:
    """Change the result of a product in place."""
    real = torch.mm
    return lambda patch: patch.setattr(torch, "mm", lambda a, b, *, out: change(real(a, b, out=out)))


def function(name: str, broken: Callable[..., Tensor]) -> Break:
    """Replace a function of torch.nn.functional."""
    return lambda patch: patch.setattr(functional, name, broken)


def turned_back(patch: pytest.MonkeyPatch) -> None:
    """Turn the other way, which keeps lengths too."""
    real = torch.cat
    patch.setattr(operators.torch, "cat", lambda parts, dim=0: real(parts, dim) * (-1 if dim == -1 else 1))


def later_rows_as_they_were(x: Tensor, _: object, weight: Tensor, epsilon: float) -> Tensor:
    """Normalise the first four rows only."""
    normed = x[:4] * (x[:4].square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight
    return torch.cat((normed, x[4:]))


def half_of_array(patch: pytest.MonkeyPatch) -> None:
    """Compute the second half only."""
    patch.setattr(torch, "add", lambda b, c, *, alpha, out: out.copy_(b + alpha * c)[: len(out) // 2].zero_())


def no_moments(patch: pytest.MonkeyPatch) -> None:
    """Keep no moments, so that the second step is not as long as the first."""
    real = torch.optim.AdamW.step

    def step(optimizer: torch.optim.AdamW) -> None:
        for state in optimizer.state.values():
            state["exp_avg"].zero_()
        real(optimizer)

    patch.setattr(torch.optim.AdamW, "step", step)


BROKEN: dict[str, tuple[MicroPoint, Break]] = {
    "gradient of the query": (attending("flash_backward"), gradient_of(0)),
    "gradient of the key": (attending("flash_backward"), gradient_of(1)),
    "gradient of the value": (attending("flash_backward"), gradient_of(2)),
    "attention's rows from 128 on": (attending("unfused_forward"), zeros_from(128)),
    "the same in bf16": (attending("unfused_forward", "bf16"), zeros_from(128)),
    "attention to other heads": (attending("unfused_forward", "bf16"), other_heads),
    "attention without a mask": (attending("unfused_forward", "bf16"), acausal),
    "a product's factor": (GEMM, product(lambda c: c.mul_(1.01))),
    "a product's other rows": (GEMM, product(lambda c: (c[1:].zero_(), c)[1])),
    "a product's last row": (GEMM, product(lambda c: (c[-1].zero_(), c)[1])),
    "a product that does nothing": (GEMM, lambda patch: patch.setattr(torch, "mm", lambda a, b, *, out: out)),
    "a uniform softmax": (
        operator("softmax", tokens=64, heads=4),
        function("softmax", lambda x, dim: torch.full_like(x, 1 / x.shape[dim])),
    ),
    "the same of bf16": (
        operator("softmax", "bf16", tokens=64, heads=4),
        function("softmax", lambda x, dim: torch.full_like(x, 1 / x.shape[dim])),
    ),
    "RoPE the other way": (operator("rope", **ROPE), turned_back),
    "RoPE the other way in bf16": (operator("rope", "bf16", **ROPE), turned_back),
    "a norm's later rows": (
        operator("rms_norm", tokens=64, hidden=32),
        function("rms_norm", later_rows_as_they_were),
    ),
    "a loss of the first tokens": (
        operator("cross_entropy", tokens=128, vocab=100),
        lambda patch, real=functional.cross_entropy: patch.setattr(
            functional, "cross_entropy", lambda x, y, **more: real(x[:64], y[:64], **more)
        ),
    ),
    "half of an array": (TRIAD, half_of_array),
    "AdamW without moments": (ADAMW, no_moments),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_kernel_is_noticed(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point, break_it = BROKEN[fault]
    assert verdict(point, tmp_path) == ""
    break_it(monkeypatch)
    assert "the result is off by " in verdict(point, tmp_path)
