"""Attention in one kernel: the shapes of its inputs, and so the floating-point operations that it did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Any

from llmexp.record.counted import AttentionTime
from llmexp.traces.inputs import ATTENTION, Inputs, Places
from llmexp.traces.operator_calls import OperatorCalls, work_ns
from llmexp.traces.work import Work

# A kernel of several masks numbers them: causal from the first key or from the last one.
_CAUSAL = ("True", "1", "2")
Shape = dict[str, Any]


def attention_times(asked: Sequence[OperatorCalls], work: Work) -> list[AttentionTime]:
    """Return the time of attention whose shapes are known, by operator, shape and dtype, the costliest first.

    The time is that of all kernels that the operator launched.
    """
    found: defaultdict[tuple[Any, ...], list[OperatorCalls]] = defaultdict(list)
    for each in asked:
        if shape := attention_shape(ATTENTION[each.operator], each.inputs):
            found[each.operator, *shape.items()].append(each)
    times = [
        AttentionTime(
            operator=operator,
            backward=ATTENTION[operator].backward,
            **dict(shape),
            calls=sum(each.calls for each in calls),
            work_ns=sum(work_ns(each, work) for each in calls),
        )
        for (operator, *shape), calls in found.items()
    ]
    return sorted(times, key=lambda time: -time.work_ns)


def attention_shape(places: Places, inputs: Inputs) -> Shape | None:
    """Return the shape as AttentionTime has it; None where the trace does not tell the pairs of queries and keys.

    That is where inputs are no tensors, or where a query attends to a window of keys only.
    """
    if inputs.value(places.window).isdecimal():
        return None
    try:
        query, key, value = (_sizes(places, inputs.shape(places.query + each)) for each in range(3))
        batch, heads, queries, head_dim = query
        shape: Shape = {"batch": batch, "heads": heads, "kv_heads": key[1], "queries": queries, "keys": key[2]}
        if packed := _packed(places, inputs):
            shape |= {"batch": packed, "queries": batch * queries / packed, "keys": batch * key[2] / packed}
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    causal = inputs.value(places.causal) in _CAUSAL
    own = {"dtype": inputs.dtype(places.query), "head_dim": head_dim, "value_dim": value[3], "causal": causal}
    at_end = places.at_end or inputs.value(places.causal) == "2"
    pairs = _pairs(shape["queries"], shape["keys"], causal=causal, at_end=at_end)
    return shape | own | {"pairs": pairs, "equal_lengths": bool(packed)}


def _sizes(places: Places, shape: list[int]) -> tuple[int, int, int, int]:
    """Return batch, heads, tokens and dimension; packed sequences have no batch."""
    if len(shape) == 3:
        shape = [1, *shape]
    batch, second, third, dimension = shape
    return (batch, second, third, dimension) if places.heads_first else (batch, third, second, dimension)


def _packed(places: Places, inputs: Inputs) -> int:
    """Return the number of sequences that are packed into one, or 0."""
    if places.lengths is None or not inputs.shapes[places.lengths]:
        return 0
    return prod(inputs.shape(places.lengths)) - 1


def _pairs(queries: float, keys: float, *, causal: bool, at_end: bool) -> float:
    """Return the pairs of a query and a key, half of a square where the mask is causal.

    With more keys than queries the mask hides none of the first keys where it is aligned at the last one.
    """
    if not causal:
        return queries * keys
    along, across = (keys, queries) if at_end else (queries, keys)
    return along * across - across**2 / 2 if along >= across else along**2 / 2
