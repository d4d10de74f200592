"""One rank's trace as columns: what ran on the device, what the host did, and the ranges that it had open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
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

Numbers = NDArray[np.integer[Any]]
Selection = NDArray[np.integer[Any]] | NDArray[np.bool_]
# More would take more memory than there is.
MOST_EVENTS = 100_000_000
# Microseconds below this are known to less than half a nanosecond as floating-point numbers.
EXACT_BELOW_US = 2.0**43

DEVICE, LAUNCH, OPERATOR, RANGE, CALL = "device", "launch", "operator", "range", "call"
FORWARD, BACKWARD = "forward", "backward"
# Gloo's threads open these ranges around the collectives that they carry out.
GLOO = "gloo:"
# The operator by which torch notes the size of each collective.
COMMUNICATED = "record_param_comms"
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


_TS, _NAME, _ID, _CORRELATION = (attrgetter(name) for name in ("ts", "name", "id", "args.correlation"))
_THREAD, _STREAM = attrgetter("pid", "tid"), attrgetter("args.device", "args.stream")


class _InexactError(Exception):
    """An error: these times need more digits than a floating-point number has."""


def read_trace(path: Path) -> Trace:
    """Read a trace; raises TraceError where it is none, is damaged or holds no events."""
    try:
        return _Reader(path, exact=False).read()
    except _InexactError:
        return _Reader(path, exact=True).read()


class _Reader:
    """Turns a file's events into columns; names, lanes and details are numbered as they come."""

    def __init__(self, path: Path, exact: bool) -> None:
        self._path, self._file = path, TraceFile(path, number=Decimal if exact else float)
        self._names, self._lanes, self._inputs = Numbering("names"), Numbering("threads"), Numbering("shapes")
        self._tables: defaultdict[str, _Growing] = defaultdict(_Growing)
        self._odd = self._read = 0

    def read(self) -> Trace:
        """Read all events; raises TraceError, and _InexactError where times have too many digits."""
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
            device=self._tables[DEVICE].table(),
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
        by_category: defaultdict[Any, list[Event]] = defaultdict(list)
        for event in events:
            try:
                by_category[event.cat].append(event)
            except TypeError:  # a label that is a list
                self._odd += 1
        for kind, (phase, categories) in KINDS.items():
            found = (by_category[category] for category in categories if category in by_category)
            chosen = [event for of_category in found for event in of_category if event.ph == phase]
            if kind == CALL:
                chosen = [event for event in chosen if isinstance(event.name, str) and is_followed(event.name)]
            if not chosen:
                continue
            try:
                part = self._columns(kind, chosen)
            except (TypeError, ValueError, OverflowError):  # a foreign profiler's events may hold anything
                part = self._columns(kind, self._usable(kind, chosen))
            self._tables[kind].add(part)

    def _columns(self, kind: str, events: list[Event]) -> Table:
        begin = _nanoseconds([*map(_TS, events)])
        moments = kind in (FORWARD, BACKWARD)
        end = begin if moments else begin + _nanoseconds([event.dur or 0 for event in events])
        names = [] if moments else [*map(_NAME, events)]
        if (end < begin).any() or not {*map(type, names)} <= {str}:
            raise TypeError
        lanes = [*map(_STREAM if kind == DEVICE else _THREAD, events)]
        return Table(
            begin,
            end,
            _equal(0, events) if moments else np.array([*map(self._names.__getitem__, names)], np.int32),
            np.array([*map(self._lanes.__getitem__, lanes)], np.int32),
            self._keys(kind, events),
            self._details(kind, names, events),
        )

    def _keys(self, kind: str, events: list[Event]) -> Numbers:
        if kind in (OPERATOR, RANGE, CALL):
            return _equal(-1, events)
        return _whole_numbers([*map(_CORRELATION if kind in (DEVICE, LAUNCH) else _ID, events)], otherwise=-1)

    def _usable(self, kind: str, events: list[Event]) -> list[Event]:
        """Leave out the events that have no name, no times, or an end before their begin."""
        named = kind not in (FORWARD, BACKWARD)
        usable = [event for event in events if _is_usable(event) and (isinstance(event.name, str) or not named)]
        self._odd += len(events) - len(usable)
        return usable

    def _details(self, kind: str, names: list[str], events: list[Event]) -> Numbers:
        if kind == DEVICE:
            return np.maximum(_whole_numbers([event.args.bytes for event in events], otherwise=0), 0)
        if kind not in (OPERATOR, RANGE):
            return _equal(-1, events)
        details = np.full(len(events), -1, np.int64)
        for row, name in enumerate(names):
            args = events[row].args
            if name in SHAPED or (kind == RANGE and name.startswith(GLOO)):
                details[row] = self._inputs[bytes(args.shapes), bytes(args.types), bytes(args.values)]
            elif name == COMMUNICATED:
                details[row] = self._inputs[_communicated(args)]
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

    def table(self) -> Table:
        """Return all rows; nothing can be added any more."""
        if not self._columns:
            return empty_table()
        self._resize(self._used)
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
    times = (event.ts, event.dur or 0)
    if not all(isinstance(time, int | float | Decimal) for time in times):
        return False
    ids = (event.pid, event.tid, event.args.device, event.args.stream)
    return all(isinstance(one, int | str | None) for one in ids) and abs(times[0]) < 2**52 and 0 <= times[1] < 2**52


def _nanoseconds(microseconds: list[Any]) -> Numbers:
    """Round to whole nanoseconds, exactly.

    Raises _InexactError where floating-point numbers lack digits for that, and TypeError where these are no numbers.
    """
    values: NDArray[Any] = np.array(microseconds)
    if values.dtype.kind in "iu":
        whole_us: Numbers = values.astype(np.int64)
        return whole_us * 1000
    if values.dtype.kind != "f":
        return np.array([round(value * 1000) for value in microseconds], np.int64)
    if len(values) and not np.abs(values).max() < EXACT_BELOW_US:
        raise _InexactError
    whole = np.floor(values)
    nanoseconds: Numbers = whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
    return nanoseconds


def _equal(value: int, events: list[Event]) -> Numbers:
    return np.broadcast_to(np.int64(value), (len(events),))


def _whole_numbers(values: list[Any], otherwise: int) -> Numbers:
    """Return what are whole numbers of 64 bits, and `otherwise` in place of the others."""
    kinds = {*map(type, values)}
    if kinds == {type(None)}:
        return np.full(len(values), otherwise, np.int64)
    if kinds == {int}:
        with suppress(OverflowError):
            return np.array(values, np.int64)
    return np.array([one if type(one) is int and abs(one) < 2**63 else otherwise for one in values], np.int64)
