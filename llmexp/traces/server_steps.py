"""Gives a server's own trace the ranges of ours: around its steps, at the ends of their phases, around modules.

A step is from the begin of the model's work to the next one's begin, so that it has the drawing of its tokens too. The
last one ends with its last operator or launch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llmexp.record.ranges import MODULE, PHASE_END, STEP
from llmexp.traces.events import Table, Trace
from llmexp.traces.server_names import module_of, phase_of
from llmexp.traces.times import Numbers

COMPILED = "## Call CompiledFxGraph"


def with_server_steps(trace: Trace) -> Trace:
    """Return a server's trace with ranges of steps and modules; any other trace as it is."""
    phases = [phase_of(name) for name in trace.names]
    wanted = [number for number, phase in enumerate(phases) if phase is not None]
    steps = _joined(trace.ranges, trace.calls)
    steps = steps[np.isin(steps.name, wanted)]
    steps = steps[np.lexsort((-steps.end, steps.begin))]
    if not len(steps):
        return trace
    steps = _outermost(steps)
    ends = np.concatenate((steps.begin[1:], [max(int(steps.end[-1]), _last_work(trace, int(steps.lane[-1])))]))
    names = _Names(trace)
    told = np.array([bool(phases[number]) for number in steps.name.tolist()], bool)
    marks = [names[PHASE_END + str(phases[number])] for number in steps.name[told].tolist()]
    modules = _modules(trace, names)
    found = [
        replace(steps, end=ends, name=np.full(len(steps), names[STEP], np.int32))[told],
        # A nanosecond earlier, so that it lies in this step and not in the next.
        replace(steps[told], begin=ends[told] - 1, end=ends[told] - 1, name=np.array(marks, np.int32)),
    ]
    return replace(
        trace,
        ranges=_joined(trace.ranges, *found, modules),
        operators=_joined(trace.operators, _compiled(trace)),
        names=names.all,
    )


def _compiled(trace: Trace) -> Table:
    """Return the calls of what torch.compile made of the model: on a CPU its own kernels are no operators."""
    known = [number for number, name in enumerate(trace.names) if name.startswith(COMPILED)]
    return trace.ranges[np.isin(trace.ranges.name, known)]


class _Names:
    """The names of a trace, to which others are added."""

    def __init__(self, trace: Trace) -> None:
        self.all = list(trace.names)
        self._numbers: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.all)
            self.all.append(name)
        return self._numbers[name]


def _modules(trace: Trace, names: _Names) -> Table:
    parts = {number: part for number, name in enumerate(trace.names) if (part := module_of(name))}
    calls = trace.calls[np.isin(trace.calls.name, list(parts))]
    return replace(calls, name=np.array([names[MODULE + parts[one]] for one in calls.name.tolist()], np.int32))


def _outermost(steps: Table) -> Table:
    """Leave out what lies in an earlier step: a server may call one such function by another."""
    latest = np.maximum.accumulate(steps.end)
    return steps[np.concatenate(([True], steps.begin[1:] >= latest[:-1]))]


def _last_work(trace: Trace, lane: int) -> int:
    """Return when the last operator or launch of a thread ended."""
    ends: list[Numbers] = [table.end[table.lane == lane] for table in (trace.operators, trace.launches)]
    return max((int(each.max()) for each in ends if len(each)), default=0)


def _joined(*tables: Table) -> Table:
    return Table(*map(np.concatenate, zip(*(vars(table).values() for table in tables), strict=True)))
