"""What the device did, piece by piece, and where on the host each piece was asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from llmexp.traces.events import GLOO, LANE, Selection, Table, Trace
from llmexp.traces.intervals import Innermost
from llmexp.traces.kinds import COMMUNICATION, COPY, classes
from llmexp.traces.times import Numbers

LAST = COPY + 1


@dataclass(frozen=True)
class Work:
    """Pieces of work; `lane` and `moment` say which of the host's threads asked for it, and when.

    Both are -1 where the trace does not tell. `category` is one of kinds.COMPUTE, COMMUNICATION and COPY; where pieces
    overlap, the time is that of the lowest `priority`. `detail` is the number of bytes that were copied.
    """

    begin: Numbers
    end: Numbers
    name: Numbers
    category: Numbers
    priority: Numbers
    lane: Numbers
    moment: Numbers
    detail: Numbers
    on_device: bool

    def __len__(self) -> int:
        return len(self.begin)

    def __getitem__(self, chosen: Selection) -> Work:
        columns = {name: column[chosen] for name, column in vars(self).items() if name != "on_device"}
        return replace(self, **columns)


def work_in_steps(trace: Trace, steps: Table) -> Work:
    """Return the work that was asked for in the steps, or all where no step is marked, in order of begin.

    It is that of the GPU where the trace has some, else that of the CPU's operators.
    """
    found = _of_device(trace) if len(trace.device) else _of_operators(trace)
    rows = np.arange(len(found))
    if len(steps):
        rows = np.flatnonzero((found.moment >= steps.begin.min()) & (found.moment < steps.end.max()))
    rows = rows[np.argsort(found.begin[rows], kind="stable")]
    follow_each_other = len(rows) > 0 and (np.diff(rows) == 1).all()
    return found[rows[0] : rows[-1] + 1] if follow_each_other else found[rows]  # a slice copies nothing


def _of_device(trace: Trace) -> Work:
    device, launches, by_key = trace.device, trace.launches, np.argsort(trace.launches.key, kind="stable")
    lane, moment = np.full(len(device), -1, LANE), np.full(len(device), -1, np.int64)
    if len(launches):
        index = np.searchsorted(launches.key, device.key, sorter=by_key)
        launch = by_key[np.minimum(index, len(launches) - 1)]
        launched = (launches.key[launch] == device.key) & (device.key > 0)
        lane[launched], moment[launched] = launches.lane[launch[launched]], launches.begin[launch[launched]]
    category = classes(trace.names)[device.name]
    return Work(device.begin, device.end, device.name, category, category, lane, moment, device.detail, on_device=True)


def _of_operators(trace: Trace) -> Work:
    """Return an operator's own time, without the operators that it calls, and the collectives of Gloo's threads.

    An operator that calls others may wait between them, so that its own time hides no collective.
    """
    operators = trace.operators
    innermost = Innermost(operators)
    begin, end, row = innermost.pieces()
    category = classes(trace.names)[operators.name[row]]
    priority = np.where(np.isin(row, innermost.around), np.int8(LAST), category)
    gloo = trace.ranges[np.isin(trace.ranges.name, [n for n, name in enumerate(trace.names) if name.startswith(GLOO)])]
    return Work(
        np.concatenate((begin, gloo.begin)),
        np.concatenate((end, gloo.end)),
        np.concatenate((operators.name[row], gloo.name)),
        np.concatenate((category, np.full(len(gloo), COMMUNICATION, np.int8))),
        np.concatenate((priority, np.full(len(gloo), COMMUNICATION, np.int8))),
        np.concatenate((operators.lane[row], gloo.lane)),
        np.concatenate((begin, gloo.begin)),
        np.zeros(len(begin) + len(gloo), np.int64),
        on_device=False,
    )
