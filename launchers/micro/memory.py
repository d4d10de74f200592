"""STREAM's triad, checked by the call that is timed, at numbers chosen at random, against double precision."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from llmexp.dtypes import SINGLE, bytes_of
from llmexp.launchers.micro.case import Case, CasePlace
from llmexp.launchers.micro.checks import differs, some, tolerance
from llmexp.micro.families.base import MicroPoint

# Long arrays are one row each.
MOST_NUMBERS = 2**16


def triad(point: MicroPoint, place: CasePlace) -> Case:
    """Compute a = b + s c on arrays of so many bytes."""
    length = max(1, point.sizes["bytes"] // bytes_of(SINGLE))
    scale = 0.5

    def make() -> tuple[Tensor, Tensor, Tensor]:
        return place.random(length), place.random(length), place.random(length)

    sets = place.sets(make, 3 * point.sizes["bytes"])

    calls = [partial(torch.add, b, c, alpha=scale, out=a) for a, b, c in sets]

    def wrong() -> str:
        a, b, c = sets[0]
        a.fill_(torch.nan)
        calls[0]()
        few = some(length, MOST_NUMBERS)
        return differs(a[few], b[few].double() + scale * c[few].double(), tolerance(SINGLE, roundings=2))

    return Case(calls, wrong)
