"""The dtypes in which matrix products ran, as the profiler saw their operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Any

import torch

from llmexp.dtypes import SINGLE, by_trace

# The operators that compute a product themselves, each with the place of its first matrix among its arguments.
_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::_scaled_mm": 0}
# Rotary frequencies and the like are products too, whatever the model computes in.
_WORTH_NAMING = 0.01


def products_in(events: Iterable[Any]) -> str | None:
    """Name the dtypes with at least 1 % of all multiplications, most first; None where no product was seen.

    `events` are Kineto's, recorded with shapes. fp32 on a GPU that may round operands to TF32 is named tf32.
    """
    multiplications: Counter[str] = Counter()
    for event in events:
        if (place := _PRODUCTS.get(event.name())) is not None and event.device_type().name == "CPU":
            left, right = event.shapes()[place : place + 2]
            dtype = event.dtypes()[place]
            multiplications[by_trace().get(dtype, dtype)] += prod(left) * right[-1]
    least = _WORTH_NAMING * multiplications.total()
    found = [_as_computed(dtype) for dtype, count in multiplications.most_common() if count and count >= least]
    return " and ".join(found) or None


def _as_computed(dtype: str) -> str:
    rounds = torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32
    return "tf32" if dtype == SINGLE and rounds else dtype
