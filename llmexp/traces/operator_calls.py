"""Which calls of operators asked for pieces of work, with the inputs of those calls."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from llmexp.traces.events import Trace
from llmexp.traces.inputs import Inputs
from llmexp.traces.intervals import Innermost, rows_of
from llmexp.traces.times import Numbers
from llmexp.traces.work import Work


@dataclass(frozen=True)
class OperatorCalls:
    """The calls of one operator with equal inputs, and the rows of the work that they asked for."""

    operator: str
    inputs: Inputs
    calls: int
    pieces: Numbers


def operator_calls(
    operators: Collection[str], trace: Trace, work: Work, rows: Numbers, *, outermost: bool = False
) -> list[OperatorCalls]:
    """Return who asked for these rows of the work; what none of the operators asked for is left out.

    Of calls in each other only the innermost count, or with `outermost` the outermost, so that none counts twice.
    """
    named = [number for number, name in enumerate(trace.names) if name in operators]
    calls = trace.operators[np.isin(trace.operators.name, named) & (trace.operators.detail >= 0)]
    found = Innermost(calls)
    call = found.at(work.lane[rows], work.moment[rows])
    if outermost:
        call = _outermost(call, found.around)
    else:
        call[np.isin(call, found.around)] = -1
    rows, call = rows[call >= 0], call[call >= 0]
    which = calls.name[call].astype(np.int64) * len(trace.inputs) + calls.detail[call]
    return [
        OperatorCalls(
            operator=trace.names[calls.name[call[group[0]]]],
            inputs=Inputs.of(trace.inputs[calls.detail[call[group[0]]]]),
            calls=len(np.unique(call[group])),
            pieces=rows[group],
        )
        for _, group in rows_of(which)
    ]


def _outermost(call: Numbers, around: Numbers) -> Numbers:
    around = np.append(around, -1)  # which nothing, -1, has around it
    while (outer := around[call]).max(initial=-1) >= 0:
        call = np.where(outer >= 0, outer, call)
    return call


def work_ns(asked: OperatorCalls, work: Work) -> int:
    """Return the time of the pieces; where they overlap, it counts for each."""
    return int((work.end[asked.pieces] - work.begin[asked.pieces]).sum())
