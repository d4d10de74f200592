"""The work of a trace whose floating-point operations are known, by operator and shape."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from llmexp.dtypes import SINGLE
from llmexp.record.counted import AttentionTime, GemmTime
from llmexp.traces.attention import attention_shape, attention_times
from llmexp.traces.events import Trace
from llmexp.traces.inputs import ATTENTION, PRODUCTS, Inputs
from llmexp.traces.kinds import COMPUTE
from llmexp.traces.operator_calls import OperatorCalls, operator_calls, work_ns
from llmexp.traces.times import Numbers
from llmexp.traces.work import Work

_Shape = tuple[int, int, int, int]
# The operators whose first input is added to the product.
_WITH_ADDEND = ("aten::addmm", "aten::baddbmm")
_WITH_TRANSPOSED_WEIGHT = ("aten::linear", "mkldnn::_linear_pointwise", "mkl::_mkl_linear")
_GROUPED = "aten::_grouped_mm"
# Kernels that multiply numbers of fp32 with fewer digits, which has a peak of its own.
_TF32 = re.compile("tf32|s1688gemm", re.IGNORECASE)


@dataclass(frozen=True)
class Counted:
    """The products and the attention, and the rows of the work that they took."""

    gemms: list[GemmTime]
    attention: list[AttentionTime]
    rows: Numbers

    @property
    def flops(self) -> float:
        """The operations of all of them."""
        return sum(each.flops for each in (*self.gemms, *self.attention))


def count(trace: Trace, work: Work, multiplies: Numbers) -> Counted:
    """Count what the trace has shapes of; `multiplies` are the rows of the work that are products of matrices.

    Attention that is computed by products counts as these.
    """
    products = operator_calls(PRODUCTS, trace, work, multiplies)
    computing = np.flatnonzero(work.category == COMPUTE)
    fused = operator_calls(ATTENTION, trace, work, computing, outermost=True)
    known = [each.pieces for each in products if _product_shape(each.operator, each.inputs)]
    known += [each.pieces for each in fused if attention_shape(ATTENTION[each.operator], each.inputs)]
    rows = np.unique(np.concatenate(known)) if known else np.empty(0, np.int64)
    return Counted(_gemm_times(products, work, trace.names), attention_times(fused, work), rows)


def _gemm_times(asked: Sequence[OperatorCalls], work: Work, names: Sequence[str]) -> list[GemmTime]:
    """Return the time of products whose shapes are known, by operator, shape and dtype, the costliest first."""
    found: defaultdict[tuple[str, str, _Shape], list[OperatorCalls]] = defaultdict(list)
    for each in asked:
        if shape := _product_shape(each.operator, each.inputs):
            found[each.operator, _dtype(each, work, names), shape].append(each)
    times = [
        GemmTime(
            operator=operator,
            dtype=dtype,
            **dict(zip(("batch", "m", "n", "k"), shape, strict=True)),
            calls=sum(each.calls for each in calls),
            work_ns=sum(work_ns(each, work) for each in calls),
        )
        for (operator, dtype, shape), calls in found.items()
    ]
    return sorted(times, key=lambda time: -time.work_ns)


def _product_shape(operator: str, inputs: Inputs) -> _Shape | None:
    """Return batch, m, n and k of an operator's product by the shapes of its inputs; None where they do not fit."""
    first = int(operator in _WITH_ADDEND)
    try:
        left, right = inputs.shape(first), inputs.shape(first + 1)
        if operator in _WITH_TRANSPOSED_WEIGHT:
            return 1, prod(left[:-1]), right[0], left[-1]
        *batch, m, k = left
        # Each row of a grouped product meets the matrix of its own group, and each group's columns that group's rows.
        each_once = operator == _GROUPED and len(left) + len(right) < 6
        return 1 if each_once else prod(batch), m, right[-1], k
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _dtype(asked: OperatorCalls, work: Work, names: Sequence[str]) -> str:
    dtype = asked.inputs.dtype(int(asked.operator in _WITH_ADDEND))
    if dtype == SINGLE and any(_TF32.search(names[name]) for name in set(work.name[asked.pieces].tolist())):
        return "tf32"
    return dtype
