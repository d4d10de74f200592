"""The matrix products of a trace: their shapes, and so the floating-point operations that they did."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any

import msgspec
import numpy as np

from llmexp.record.breakdown import GemmTime
from llmexp.traces.events import Numbers, Trace
from llmexp.traces.intervals import Innermost
from llmexp.traces.work import Work

Shape = tuple[int, int, int, int]
# The operators whose first input is added to the product.
_WITH_ADDEND = ("aten::addmm", "aten::baddbmm")


def gemm_times(trace: Trace, work: Work) -> list[GemmTime]:
    """Return the time of the products by operator and shape, the costliest first.

    `work` holds the pieces that multiplied matrices. A product whose operator's shapes the trace lacks is left out.
    """
    operators = trace.operators[trace.operators.detail >= 0]
    row = Innermost(operators).at(work.lane, work.moment)
    pieces = np.flatnonzero(row >= 0)
    asked = np.stack((operators.name[row[pieces]], operators.detail[row[pieces]]))
    found: defaultdict[tuple[str, Shape], list[Numbers]] = defaultdict(list)
    for name, number in np.unique(asked, axis=1).T.tolist():
        if shape := product_shape(trace.names[name], trace.shapes[number]):
            chosen = pieces[(asked[0] == name) & (asked[1] == number)]
            found[trace.names[name], shape].append(chosen)
    times = [_time(name, shape, np.concatenate(rows), row, work) for (name, shape), rows in found.items()]
    return sorted(times, key=lambda time: -time.work_ns)


def product_shape(operator: str, shapes: bytes) -> Shape | None:
    """Return batch, m, n and k of an operator by the shapes of its inputs, a JSON list; None where they do not fit."""
    try:
        inputs: list[Any] = msgspec.json.decode(shapes)[operator in _WITH_ADDEND :][:2]
        left, right = ([int(size) for size in each] for each in inputs)
        if operator == "aten::linear":
            return 1, prod(left[:-1]), right[0], left[-1]
        *batch, m, k = left
        return prod(batch), m, right[-1], k
    except (msgspec.DecodeError, ValueError, TypeError, IndexError):
        return None


def _time(name: str, shape: Shape, pieces: Numbers, operator: Numbers, work: Work) -> GemmTime:
    batch, m, n, k = shape
    return GemmTime(
        operator=name,
        batch=batch,
        m=m,
        n=n,
        k=k,
        calls=len(np.unique(operator[pieces])),
        work_ns=int((work.end[pieces] - work.begin[pieces]).sum()),
    )
