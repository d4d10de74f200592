"""The operators of a model's layers that memory limits.

Each is checked by the call that is timed, in rows chosen at random, against the same in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from llmexp.dtypes import SINGLE, bytes_of
from llmexp.launchers.micro.case import Case, CasePlace
from llmexp.launchers.micro.checks import differs, some, tolerance, weights_of
from llmexp.micro.families.base import MicroPoint

NORM_EPSILON = 1e-5
ROPE_BASE = 1e4
LOGITS_AT_ONCE = 2**22


def operator(point: MicroPoint, place: CasePlace) -> Case:
    """Make the operator of the point's kind."""
    return KINDS[point.kind](point, place)


def rms_norm(point: MicroPoint, place: CasePlace) -> Case:
    """Normalise [tokens, hidden] by torch's own RMSNorm."""
    tokens, hidden = point.sizes["tokens"], point.sizes["hidden"]
    weight = place.random(hidden, dtype=point.dtype)
    sets = place.sets(
        lambda: place.random(tokens, hidden, dtype=point.dtype), 2 * tokens * hidden * bytes_of(point.dtype)
    )

    calls = [partial(functional.rms_norm, x, (hidden,), weight, NORM_EPSILON) for x in sets]

    def wrong() -> str:
        rows = some(tokens)
        x = sets[0][rows].double()
        wanted = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPSILON) * weight.double()
        # The factor of a token, the number divided, and the product with the weight.
        return differs(calls[0]()[rows], wanted, tolerance(point.dtype, roundings=3, terms=hidden))

    return Case(calls, wrong)


def softmax(point: MicroPoint, place: CasePlace) -> Case:
    """Take the softmax of the scores [heads, tokens, tokens]."""
    heads, tokens = point.sizes["heads"], point.sizes["tokens"]
    elements = heads * tokens * tokens
    sets = place.sets(
        lambda: place.random(heads, tokens, tokens, dtype=point.dtype), 2 * elements * bytes_of(point.dtype)
    )

    calls = [partial(functional.softmax, x, dim=-1) for x in sets]

    def wrong() -> str:
        rows = some(heads * tokens)
        wanted = weights_of(sets[0].flatten(0, 1)[rows])
        # The exponential, the sum and the quotient.
        return differs(calls[0]().flatten(0, 1)[rows], wanted, tolerance(point.dtype, roundings=3, terms=tokens))

    return Case(calls, wrong)


def rope(point: MicroPoint, place: CasePlace) -> Case:
    """Turn queries and keys [heads, tokens, head_dim] by their positions, as transformers' Llama does."""
    tokens, head_dim = point.sizes["tokens"], point.sizes["head_dim"]
    heads = point.sizes["heads"], point.sizes["kv_heads"]
    like = place.random(1, dtype=point.dtype)
    angles = _angles(torch.arange(tokens), head_dim).repeat(1, 2)
    cos, sin = angles.cos().to(like), angles.sin().to(like)
    sets = place.sets(
        lambda: tuple(place.random(each, tokens, head_dim, dtype=point.dtype) for each in heads),
        2 * sum(heads) * tokens * head_dim * bytes_of(point.dtype),
    )

    def turn(parts: tuple[Tensor, ...]) -> list[Tensor]:
        return [x * cos + torch.cat((-x[..., head_dim // 2 :], x[..., : head_dim // 2]), -1) * sin for x in parts]

    def wrong() -> str:
        rows = some(tokens)
        # Sine and cosine, the products, and their sum.
        allowed = tolerance(point.dtype, roundings=3)
        pairs = zip(turn(sets[0]), sets[0], strict=True)
        return next(filter(None, (differs(y[:, rows], _turned(x[:, rows], rows), allowed) for y, x in pairs)), "")

    return Case([partial(turn, parts) for parts in sets], wrong)


def _angles(positions: Tensor, head_dim: int) -> Tensor:
    """Return the angle of each pair of numbers at each position in radians, [positions, head_dim / 2], in fp64."""
    return torch.outer(positions.double(), ROPE_BASE ** (-torch.arange(0, head_dim, 2).double() / head_dim))


def _turned(x: Tensor, positions: Tensor) -> Tensor:
    """Turn [heads, positions, head_dim] as complex numbers, whose imaginary parts are the second half."""
    real, imaginary = x.double().chunk(2, dim=-1)
    angles = _angles(positions, x.shape[-1]).to(x.device)
    turned = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), dim=-1)


def cross_entropy(point: MicroPoint, place: CasePlace) -> Case:
    """Compute the loss of logits [tokens, vocab] in fp32, as transformers does."""
    tokens, vocab = point.sizes["tokens"], point.sizes["vocab"]
    labels = torch.randint(vocab, (tokens,), device=place.device)
    sets = place.sets(lambda: place.random(tokens, vocab, dtype=point.dtype), tokens * vocab * bytes_of(point.dtype))

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.float(), labels)

    def wrong() -> str:
        at_once = max(1, LOGITS_AT_ONCE // vocab)
        parts = zip(sets[0].split(at_once), labels.split(at_once), strict=True)
        wanted = torch.cat([_losses(logits.double(), of_part) for logits, of_part in parts]).mean()
        return differs(loss(sets[0])[None], wanted[None], tolerance(SINGLE, roundings=3, terms=vocab + tokens))

    return Case([partial(loss, logits) for logits in sets], wrong)


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each token, in the dtype of the logits."""
    largest = logits.amax(-1, keepdim=True)
    sums = (logits - largest).exp().sum(-1).log() + largest[:, 0]
    return sums - logits.gather(1, labels[:, None])[:, 0]


KINDS: dict[str, Callable[[MicroPoint, CasePlace], Case]] = {
    "rms_norm": rms_norm,
    "rope": rope,
    "softmax": softmax,
    "cross_entropy": cross_entropy,
}
