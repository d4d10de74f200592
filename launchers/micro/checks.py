"""How a result is compared with one in double precision: in rows chosen at random, and up to the errors of rounding."""

from __future__ import annotations

import torch
from torch import Tensor

from llmexp.dtypes import SINGLE, format_of

CHECKED_ROWS = 16
# Errors of the roundings in a sum of n terms add up like a random walk, and exceed 6 sqrt(n) of them in 3 of 1e8 sums
# (Higham and Mary 2019, doi:10.1137/18M1226312, theorem 2.4).
DEVIATIONS = 6.0
# Vectorized exponentials are within 20 units in the last place, each of which is two roundings (torch's exp_u20).
FUNCTION_ROUNDINGS = 40


def some(count: int, most: int = CHECKED_ROWS) -> Tensor:
    """Return the numbers of rows to check, in order: the first, the last, and a random one of each of `most` parts."""
    edges = torch.arange(min(most, count) + 1) * count // min(most, count)
    within = edges[:-1] + (torch.rand(len(edges) - 1) * edges.diff()).long()
    return torch.cat((edges[:1], within, edges[-1:] - 1)).unique()


def tolerance(dtype: str, roundings: float, terms: int = 1) -> float:
    """Return the largest relative error of a sum of so many terms that is kept in fp32.

    Besides, values are rounded to the dtype so many times on their way.
    """
    in_fp32 = FUNCTION_ROUNDINGS + DEVIATIONS * terms**0.5
    return roundings * format_of(dtype).unit_roundoff + in_fp32 * format_of(SINGLE).unit_roundoff


def differs(found: Tensor, wanted: Tensor, allowed: float, size: Tensor | None = None) -> str:
    """Say by how much a row differs from the one wanted, in parts of its Euclidean norm; "" where that is allowed.

    Rows are along the last dimension. `size` replaces their norms where the terms of a sum are larger than the sum.
    """
    error = (found.detach().double() - wanted).norm(dim=-1)
    size = wanted.norm(dim=-1) if size is None else size
    wrong = ~(error <= allowed * size)  # also where the error is no number
    if not wrong.any():
        return ""
    return f"the result is off by {float((error / size)[wrong].max()):.2g} of a row's size; allowed is {allowed:.2g}"


def weights_of(scores: Tensor) -> Tensor:
    """Return the softmax along the last dimension in double precision, by its definition."""
    powers = (scores.double() - scores.double().amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)
