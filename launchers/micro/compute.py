"""Matrix products and memory: the two limits that computation has."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from llmexp.launchers.micro.case import Case, Place, differs
from llmexp.plan.micro_plan import MicroPoint
from llmexp.schema import BYTES_PER_ELEMENT

# Sums of products of normal values, in the dtype's own rounding.
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}


def gemm(point: MicroPoint, place: Place) -> Case:
    """Multiply [m, k] by the transposed [n, k], as a linear layer does."""
    m, n, k = (point.sizes[name] for name in "mnk")
    element = BYTES_PER_ELEMENT[point.dtype]

    def make() -> tuple[Tensor, Tensor, Tensor]:
        a, b = place.random(m, k, dtype=point.dtype), place.random(n, k, dtype=point.dtype)
        return a, b.t(), torch.empty(m, n, dtype=a.dtype, device=a.device)

    sets = place.sets(make, element * (m * k + n * k + m * n))

    def wrong() -> str:
        a, b, _ = sets[0]
        torch.mm(*sets[0][:2], out=sets[0][2])
        return differs(sets[0][2][0], (a[:1].double() @ b.double())[0], TOLERANCE[point.dtype])

    return Case([partial(torch.mm, a, b, out=c) for a, b, c in sets], wrong)


def triad(point: MicroPoint, place: Place) -> Case:
    """Compute a = b + s c on arrays of so many bytes."""
    length = max(1, point.sizes["bytes"] // BYTES_PER_ELEMENT["fp32"])
    scale = 0.5

    def make() -> tuple[Tensor, Tensor, Tensor]:
        return place.random(length), place.random(length), place.random(length)

    sets = place.sets(make, 3 * point.sizes["bytes"])

    def wrong() -> str:
        a, b, c = sets[0]
        torch.add(b, c, alpha=scale, out=a)
        return differs(a[-100:], b[-100:].double() + scale * c[-100:].double(), 1e-6)

    return Case([partial(torch.add, b, c, alpha=scale, out=a) for a, b, c in sets], wrong)


def rms_norm(point: MicroPoint, place: Place) -> Case:
    """Normalise [tokens, hidden] by torch's own RMSNorm."""
    tokens, hidden = point.sizes["tokens"], point.sizes["hidden"]
    weight = place.random(hidden, dtype=point.dtype)
    sets = place.sets(
        lambda: place.random(tokens, hidden, dtype=point.dtype), 2 * tokens * hidden * BYTES_PER_ELEMENT[point.dtype]
    )

    def wrong() -> str:
        x, w = sets[0][:4].double(), weight.double()
        wanted = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w
        return differs(functional.rms_norm(sets[0][:4], (hidden,), weight, 1e-5), wanted, TOLERANCE[point.dtype])

    return Case([partial(functional.rms_norm, x, (hidden,), weight, 1e-5) for x in sets], wrong)


def softmax(point: MicroPoint, place: Place) -> Case:
    """Take the softmax of the scores [heads, tokens, tokens]."""
    heads, tokens = point.sizes["heads"], point.sizes["tokens"]
    elements = heads * tokens * tokens
    sets = place.sets(
        lambda: place.random(heads, tokens, tokens, dtype=point.dtype), 2 * elements * BYTES_PER_ELEMENT[point.dtype]
    )

    def wrong() -> str:
        sums = functional.softmax(sets[0], dim=-1)[:, 0].double().sum(-1)
        return differs(sums, torch.ones_like(sums), TOLERANCE[point.dtype])

    return Case([partial(functional.softmax, x, dim=-1) for x in sets], wrong)


def rope(point: MicroPoint, place: Place) -> Case:
    """Turn queries and keys [heads, tokens, head_dim] by their positions, as transformers' Llama does."""
    tokens, head_dim = point.sizes["tokens"], point.sizes["head_dim"]
    heads = point.sizes["heads"], point.sizes["kv_heads"]
    angles = torch.outer(torch.arange(tokens), 1e4 ** (-torch.arange(0, head_dim, 2) / head_dim)).repeat(1, 2)
    like = place.random(1, dtype=point.dtype)
    cos, sin = angles.cos().to(like), angles.sin().to(like)
    sets = place.sets(
        lambda: tuple(place.random(each, tokens, head_dim, dtype=point.dtype) for each in heads),
        2 * sum(heads) * tokens * head_dim * BYTES_PER_ELEMENT[point.dtype],
    )

    def turn(parts: tuple[Tensor, ...]) -> list[Tensor]:
        return [x * cos + torch.cat((-x[..., head_dim // 2 :], x[..., : head_dim // 2]), -1) * sin for x in parts]

    def wrong() -> str:
        # A turn keeps lengths.
        return differs(turn(sets[0])[0].double().norm(dim=-1), sets[0][0].double().norm(dim=-1), TOLERANCE[point.dtype])

    return Case([partial(turn, parts) for parts in sets], wrong)


def cross_entropy(point: MicroPoint, place: Place) -> Case:
    """Compute the loss of logits [tokens, vocab] in fp32, as transformers does."""
    tokens, vocab = point.sizes["tokens"], point.sizes["vocab"]
    labels = torch.randint(vocab, (tokens,), device=place.device)
    sets = place.sets(
        lambda: place.random(tokens, vocab, dtype=point.dtype), tokens * vocab * BYTES_PER_ELEMENT[point.dtype]
    )

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.float(), labels)

    def wrong() -> str:
        few = sets[0][:64].double()
        wanted = few.logsumexp(-1) - few.gather(1, labels[:64, None])[:, 0]
        found = functional.cross_entropy(sets[0][:64].float(), labels[:64], reduction="none")
        return differs(found, wanted, 1e-4)

    return Case([partial(loss, logits) for logits in sets], wrong)
