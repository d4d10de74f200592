"""Matrix products, checked by the call that is timed, in rows chosen at random, against double precision."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from llmexp.dtypes import bytes_of
from llmexp.launchers.micro.case import Case, CasePlace
from llmexp.launchers.micro.checks import differs, some, tolerance
from llmexp.micro.families.base import MicroPoint

# A product may be the sum of several parts' products, which are rounded as the result is.
ROUNDINGS_OF_PRODUCT = 4
COLUMNS_AT_ONCE = 1024


def gemm(point: MicroPoint, place: CasePlace) -> Case:
    """Multiply [m, k] by the transposed [n, k], as a linear layer does."""
    m, n, k = (point.sizes[name] for name in "mnk")
    element = bytes_of(point.dtype)

    def make() -> tuple[Tensor, Tensor, Tensor]:
        a, b = place.random(m, k, dtype=point.dtype), place.random(n, k, dtype=point.dtype)
        return a, b.t(), torch.empty(m, n, dtype=a.dtype, device=a.device)

    sets = place.sets(make, element * (m * k + n * k + m * n))

    calls = [partial(torch.mm, a, b, out=c) for a, b, c in sets]

    def wrong() -> str:
        a, b, c = sets[0]
        c.fill_(torch.nan)
        calls[0]()
        rows = some(m)
        few = a[rows].double()
        wanted = torch.cat([few @ part.double() for part in b.split(COLUMNS_AT_ONCE, dim=1)], dim=1)
        return differs(c[rows], wanted, tolerance(point.dtype, ROUNDINGS_OF_PRODUCT, terms=k))

    return Case(calls, wrong)
