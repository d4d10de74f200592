"""One rank's trace as columns: what ran on the device, what the host did, and the ranges that it had open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from llmexp.errors import TraceError
from llmexp.traces.inputs import SHAPED, Raw
from llmexp.traces.numbering import Numbering, TooManyError
from llmexp.traces.parsing import Arguments, Event, TraceFile
from llmexp.traces.server_names import is_followed
from llmexp.traces.times import Numbers, durations_ns, is_duration, is_time, nanoseconds

Selection = NDArray[np.integer[Any]] | NDArray[np.bool_] | slice
# The type of the lanes' numbers, of which there are MOST_LANES at most.
LANE = np.int16
# More would take more memory than there is.
MOST_EVENTS = 100_000_000

DEVICE, LAUNCH, OPERATOR, RANGE, CALL = "device", "launch", "operator", "range", "call"
MOMENTS = FORWARD, BACKWARD = "forward", "backward"
# Gloo's threads open these ranges around the collectives that they carry out.
GLOO = "gloo:"
# The operator by which torch notes the size of each collective.
COMMUNICATED = "record_param_comms"
# The operators of which more is kept than their name.
NOTED = SHAPED | {COMMUNICATED}
# The phase and the categories of the events of each kind.
KINDS = {
    DEVICE: ("X", ("kernel", "gpu_memcpy", "gpu_memset", "concurrent_kernel", "Kernel", "Memcpy", "Memset")),
    LAUNCH: ("X", ("cuda_runtime", "cuda_driver", "privateuse1_runtime", "Runtime")),
    OPERATOR: ("X", ("cpu_op", "Operator")),
    RANGE: ("X", ("user_annotation",)),
    CALL: ("X", ("python_function",)),
    FORWARD: ("s", ("fwdbwd",)),
    BACKWARD: ("f", ("fwdbwd",)),
}


@dataclass(frozen=True)
class Table:
    """Columns of one length, in nanoseconds and in numbers that stand for names and lanes.

    A lane is a host's thread or a device's stream. `key` is the correlation of what a device ran and of its launch, or
    the number of a link. `detail` is the number of bytes that a device copied, the number of the inputs of an operator
    or a collective, or -1.
    """

    begin: Numbers
    end: Numbers
    name: Numbers
    lane: Numbers
    key: Numbers
    detail: Numbers

    def __len__(self) -> int:
        return len(self.begin)

    def __getitem__(self, chosen: Selection) -> Table:
        return Table(*(column[chosen] for column in vars(self).values()))

    def in_order(self) -> Table:
        """Return the rows by lane and begin; of those that begin together the longest comes first."""
        return self[np.lexsort((-self.end, self.begin, self.lane))]


def empty_table() -> Table:
    """Return a table without rows."""
    none: Numbers = np.empty(0, np.int64)
    return Table(none, none, none, none, none, none)


@dataclass(frozen=True)
class Trace:
    """The tables of one file.

    `calls` are those of Python that servers' steps and modules are known by, where Python was traced. Rows of `forward`
    and `backward` with one key are moments in an operator and in the operator of its backward.
    """

    device: Table
    launches: Table
    operators: Table
    ranges: Table
    forward: Table
    backward: Table
    calls: Table
    names: Sequence[str]
    lanes: Sequence[Hashable]
    inputs: Sequence[Raw]
    truncated: bool = False
    odd_events: int = 0
    device_name: str = ""


_TS, _DUR, _NAME, _ID, _CORRELATION = (attrgetter(name) for name in ("ts", "dur", "name", "id", "args.correlation"))
_THREAD, _STREAM = attrgetter("pid", "tid"), attrgetter("args.device", "args.stream")


def read_trace(path: Path) -> Trace:
    """Read a trace; raises TraceError where it is none, is damaged or holds no events."""
    return _Reader(path).read()


# Columns of one number; to cut one takes a hundredth of the time of making it.
_EQUAL: dict[int, Numbers] = {value: np.broadcast_to(np.int64(value), (MOST_EVENTS,)) for value in (-1, 0)}


class _Reader:
    """Turns a file's events into columns; names, lanes and details are numbered as they come."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, TraceFile(path)
        self._names, self._lanes, self._inputs = Numbering("names"), Numbering("threads"), Numbering("shapes")
        self._tables: defaultdict[str, _Growing] = defaultdict(_Growing)
        self._odd = self._read = 0

    def read(self) -> Trace:
        """Read all events; raises TraceError."""
        for events in self._file:
            self._read += len(events)
            if self._read > MOST_EVENTS:
                raise TraceError(f"{self._path} has more than {MOST_EVENTS} events, which is more than is read")
            try:
                self._take(events)
            except TooManyError as error:
                raise TraceError(f"{self._path} has more different {error} than are read") from None
        if not self._tables:
            raise TraceError(f"{self._path} has no events of operators, kernels or ranges")
        return Trace(
            device=self._tables[DEVICE].table(by_begin=True),
            launches=self._tables[LAUNCH].table(),
            operators=self._tables[OPERATOR].table(),
            ranges=self._tables[RANGE].table(),
            forward=self._tables[FORWARD].table(),
            backward=self._tables[BACKWARD].table(),
            calls=self._tables[CALL].table(),
            names=list(self._names),
            lanes=list(self._lanes),
            inputs=list(self._inputs),
            truncated=self._file.truncated,
            odd_events=self._odd + self._file.unreadable,
            device_name=self._file.device_name,
        )

    def _take(self, events: list[Event]) -> None:
        chosen = self._chosen(events)
        for (kind, of_kind), times in zip(chosen.items(), _times_together(chosen), strict=True):
            try:
                part = self._columns(kind, of_kind, *(times or _times(kind, of_kind)))
            except (TypeError, ValueError, OverflowError):  # a foreign profiler's events may hold anything
                usable = self._usable(kind, of_kind)
                part = self._columns(kind, usable, *_times(kind, usable))
            self._tables[kind].add(part)

    def _chosen(self, events: list[Event]) -> dict[str, list[Event]]:
        """Return the events of each kind, in the order of KINDS, without kinds that have none."""
        by_category: defaultdict[Any, list[Event]] = defaultdict(list)
        for event in events:
            try:
                by_category[event.cat].append(event)
            except TypeError:  # a label that is a list
                self._odd += 1
        found: dict[str, list[Event]] = {}
        for kind, (phase, categories) in KINDS.items():
            of_kind = [event for category in categories for event in by_category.get(category, ()) if event.ph == phase]
            if kind == CALL:
                of_kind = [event for event in of_kind if isinstance(event.name, str) and is_followed(event.name)]
            if of_kind:
                found[kind] = of_kind
        return found

    def _columns(self, kind: str, events: list[Event], begin: Numbers, end: Numbers) -> Table:
        moments = kind in MOMENTS
        if (end < begin).any():
            raise ValueError
        names = [] if moments else [*map(_NAME, events)]
        lanes = map(_STREAM if kind == DEVICE else _THREAD, events)
        return Table(
            begin,
            end,
            _equal(0, events) if moments else np.fromiter(map(self._names.__getitem__, names), np.int32, len(events)),
            np.fromiter(map(self._lanes.__getitem__, lanes), LANE, len(events)),
            self._keys(kind, events),
            self._details(kind, names, events),
        )

    def _keys(self, kind: str, events: list[Event]) -> Numbers:
        if kind in (OPERATOR, RANGE, CALL):
            return _equal(-1, events)
        return _whole_numbers([*map(_CORRELATION if kind in (DEVICE, LAUNCH) else _ID, events)], otherwise=-1)

    def _usable(self, kind: str, events: list[Event]) -> list[Event]:
        """Leave out the events that have no name, no times, or an end before their begin."""
        named = kind not in MOMENTS
        usable = [event for event in events if _is_usable(event) and (isinstance(event.name, str) or not named)]
        self._odd += len(events) - len(usable)
        return usable

    def _details(self, kind: str, names: list[str], events: list[Event]) -> Numbers:
        if kind == DEVICE:
            return np.maximum(_whole_numbers([event.args.bytes for event in events], otherwise=0), 0)
        if kind not in (OPERATOR, RANGE):
            return _equal(-1, events)
        details = np.full(len(events), -1, np.int64)
        ranges = kind == RANGE
        for row in [row for row, name in enumerate(names) if name in NOTED or (ranges and name.startswith(GLOO))]:
            args = events[row].args
            if names[row] == COMMUNICATED:
                details[row] = self._inputs[_communicated(args)]
            else:
                details[row] = self._inputs[bytes(args.shapes), bytes(args.types), bytes(args.values)]
        return details


class _Growing:
    """A table that grows in place, so that there are never two copies of it.

    A column of equal numbers in the first part, which has one number only (numpy.broadcast_to), is kept as that.
    """

    def __init__(self) -> None:
        self._used = self._room = 0
        self._columns: dict[str, Numbers] = {}
        self._equal: dict[str, Numbers] = {}

    def add(self, part: Table) -> None:
        """Append rows."""
        if not self._columns:
            self._equal = {name: values[:1] for name, values in vars(part).items() if values.strides == (0,)}
            others = (name for name in vars(part) if name not in self._equal)
            self._columns = {name: np.empty(0, vars(part)[name].dtype) for name in others}
        end = self._used + len(part)
        if end > self._room:
            self._resize(max(end, 1024, self._used * 3 // 2))
        for name, column in self._columns.items():
            column[self._used : end] = vars(part)[name]
        self._used = end

    def table(self, by_begin: bool = False) -> Table:
        """Return all rows, which may be put in order of begin; nothing can be added any more."""
        if not self._columns:
            return empty_table()
        self._resize(self._used)
        if by_begin:
            order = np.argsort(self._columns["begin"], kind="stable")
            for column in self._columns.values():
                column[:] = column[order]
        equal = {name: np.broadcast_to(one, (self._used,)) for name, one in self._equal.items()}
        return Table(**self._columns, **equal)

    def _resize(self, rows: int) -> None:
        self._room = rows
        for column in self._columns.values():
            column.resize(rows, refcheck=False)


def _communicated(args: Arguments) -> Raw:
    """Return what torch notes of a collective as the inputs of a call: its name and dtype, and the numbers moved."""
    told, numbers = (args.collective, args.dtype), (args.sent, args.received)
    known = [number for number in numbers if type(number) is int]
    return b"[]", msgspec.json.encode([str(each) for each in told]), msgspec.json.encode(known)


def _is_usable(event: Event) -> bool:
    ids = (event.pid, event.tid, event.args.device, event.args.stream)
    return all(isinstance(one, int | str | None) for one in ids) and is_time(event.ts) and is_duration(event.dur)


def _times_together(chosen: Mapping[str, Sequence[Event]]) -> list[tuple[Numbers, Numbers] | None]:
    """Return the begins and ends of each kind's events, or None for each; few long arrays take less time than many."""
    with suppress(TypeError, ValueError):
        if not chosen:
            return []
        cuts = [0, *accumulate(map(len, chosen.values()))]
        begin = nanoseconds([*map(_TS, chain.from_iterable(chosen.values()))])
        lasting = [events for kind, events in chosen.items() if kind not in MOMENTS]
        durations = durations_ns([*map(_DUR, chain.from_iterable(lasting))])
        end = begin.copy()
        end[: len(durations)] += durations
        return [(begin[first:last], end[first:last]) for first, last in pairwise(cuts)]
    return [None] * len(chosen)


def _times(kind: str, events: Sequence[Event]) -> tuple[Numbers, Numbers]:
    """Return the begins and ends of events of one kind; raises TypeError or ValueError where one is no number."""
    begin = nanoseconds([*map(_TS, events)])
    return begin, begin if kind in MOMENTS else begin + durations_ns([*map(_DUR, events)])


def _equal(value: int, events: Sequence[Event]) -> Numbers:
    return _EQUAL[value][: len(events)]


def _whole_numbers(values: list[Any], otherwise: int) -> Numbers:
    """Return what are whole numbers of 64 bits, and `otherwise` in place of the others."""
    kinds = {*map(type, values)}
    if kinds == {type(None)}:
        return np.full(len(values), otherwise, np.int64)
    if kinds == {int}:
        with suppress(OverflowError):
            return np.array(values, np.int64)
    return np.array([one if type(one) is int and abs(one) < 2**63 else otherwise for one in values], np.int64)
