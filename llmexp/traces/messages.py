"""The bytes of a trace's collectives, which torch notes beside each call, and Gloo in the ranges of its threads."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from llmexp.record.collectives import ALL_GATHER, collective_kind
from llmexp.traces.events import COMMUNICATED, GLOO, Table, Trace
from llmexp.traces.inputs import Inputs

# The names that torch.distributed and the profiler have for dtypes, with their bytes.
_SIZES = {
    **dict.fromkeys(("double", "long int", "long"), 8),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("half", "bfloat16", "short int", "short"), 2),
    **dict.fromkeys(("byte", "unsigned char", "signed char", "char", "bool"), 1),
}


def moved_bytes(trace: Trace, steps: Table, ranks: int) -> dict[str, int]:
    """Return the bytes of the collectives that were called in the steps, by kind, of all calls of a rank.

    Bytes are those of the larger of what the rank puts in and gets out. Calls whose size is not noted count nothing.
    """
    found: Counter[str] = Counter()
    told = [number for number, name in enumerate(trace.names) if name == COMMUNICATED or name.startswith(GLOO)]
    for table in (trace.operators, trace.ranges):
        noted = table[np.isin(table.name, told) & (table.detail >= 0)]
        if len(steps):
            noted = noted[(noted.begin >= steps.begin.min()) & (noted.begin < steps.end.max())]
        for name, detail in zip(noted.name.tolist(), noted.detail.tolist(), strict=True):
            kind, size = _message(trace.names[name], Inputs.of(trace.inputs[detail]), ranks)
            if kind and size:
                found[kind] += size
    return dict(found)


def _message(name: str, inputs: Inputs, ranks: int) -> tuple[str | None, int]:
    try:
        if name == COMMUNICATED:
            collective, dtype = map(str, inputs.types)
            return collective_kind(collective), max(map(int, inputs.values)) * _size_of(dtype)
        if name.startswith(GLOO):
            kind = collective_kind(name)
            # Gloo tells what a rank puts in.
            numbers = prod(map(int, inputs.shapes[0])) * (ranks if kind == ALL_GATHER else 1)
            return kind, numbers * _size_of(str(inputs.types[0]))
    except (IndexError, ValueError, TypeError, KeyError):
        pass
    return None, 0


def _size_of(dtype: str) -> int:
    return _SIZES[dtype.removeprefix("c10::").lower()]
