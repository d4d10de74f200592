"""Sums up where the time of a trace went: by cause, phase, module, kind of work and kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from llmexp.errors import TraceError
from llmexp.record.breakdown import Breakdown, BreakdownShare, KernelTime, ModuleTime
from llmexp.record.ranges import SERVER_PHASES
from llmexp.traces.attribution import Attribution
from llmexp.traces.counting import count
from llmexp.traces.events import Selection, Trace, empty_table, read_trace
from llmexp.traces.intervals import Union, exclusive_ns, rows_of
from llmexp.traces.kinds import COMMUNICATION, COMPUTE, COPY, COPYING, GEMM, collective_of, kind_of
from llmexp.traces.server_steps import with_server_steps
from llmexp.traces.times import Numbers
from llmexp.traces.work import Work, work_in_steps

KEPT_KERNELS, KEPT_SHAPES = 40, 40
# Names of kernels that are templates can have thousands of characters.
LONGEST_NAME = 200


@dataclass(frozen=True)
class Profile:
    """The work of a trace's steps, with the phases and modules that asked for it.

    `trace` has no tables of the device, which are large and no longer needed.
    """

    source: str
    trace: Trace
    attribution: Attribution
    work: Work


def read_profile(path: Path) -> Profile:
    """Read a trace; raises TraceError where there is no work in it, or in its steps."""
    trace = with_server_steps(read_trace(path))
    # The larger half of the tables is needed for the work alone.
    lighter = replace(trace, device=empty_table(), launches=empty_table())
    try:
        attribution = Attribution(lighter)
    except TraceError as error:
        raise TraceError(f"{path} {error}") from None
    work = work_in_steps(trace, attribution.steps)
    if not len(work):
        steps = " in its steps" if len(attribution.steps) else ""
        raise TraceError(f"{path} has no work of a device or of operators{steps}")
    return Profile(path.name, lighter, attribution, work)


def break_down(profile: Profile) -> Breakdown:
    """Say where the time of the steps went; raises TraceError where none went."""
    steps, work = profile.attribution.steps, profile.work
    begin_ns, end_ns = int(work.begin.min()), int(work.end.max())
    if len(steps) and not work.on_device:
        begin_ns, end_ns = int(steps.begin.min()), max(int(steps.end.max()), end_ns)
    if begin_ns == end_ns:
        raise TraceError(f"{profile.source} has no work that takes any time")
    return _Account(profile, begin_ns, end_ns).record()


class _Account:
    """Sums over the pieces of work in a window."""

    def __init__(self, profile: Profile, begin_ns: int, end_ns: int) -> None:
        trace, work = profile.trace, profile.work
        self._source, self._trace, self._attribution, self._work = profile.source, trace, profile.attribution, work
        self._begin_ns, self._end_ns = begin_ns, end_ns
        self._own = exclusive_ns(work.begin, work.end, work.priority)
        self._length = work.end - work.begin
        self._places = profile.attribution.of(work.lane, work.moment)
        self._kind_of_name = [kind_of(name) for name in trace.names]
        self._kinds = sorted(set(self._kind_of_name) | {GEMM, COPYING})
        self._kind = np.array([self._kinds.index(kind) for kind in self._kind_of_name], np.int8)[work.name]
        self._idle = self._idle_before()

    def record(self) -> Breakdown:
        late, queued, unexplained = self._causes()
        counted = count(self._trace, self._work, np.flatnonzero(self._kind == self._kinds.index(GEMM)))
        return Breakdown(
            source=self._source,
            device_name=self._trace.device_name,
            on_device=self._work.on_device,
            steps=len(self._attribution.steps),
            window_ns=self._end_ns - self._begin_ns,
            compute_ns=self._sum(self._own, self._work.category == COMPUTE),
            exposed_communication_ns=self._sum(self._own, self._work.category == COMMUNICATION),
            exposed_copy_ns=self._sum(self._own, self._work.category == COPY),
            idle_ns=int(self._idle.sum()),
            idle_late_ns=late,
            idle_queued_ns=queued,
            idle_unexplained_ns=unexplained,
            communication_ns=self._union_ns(self._work.category == COMMUNICATION),
            copy_ns=self._union_ns(self._kind == self._kinds.index(COPYING)),
            phases=self._phases(),
            modules=self._modules(),
            kernels=self._kernels(),
            gemms=counted.gemms[:KEPT_SHAPES],
            attention=counted.attention[:KEPT_SHAPES],
            counted_ns=self._sum(self._own, counted.rows),
            counted_flops=counted.flops,
            kinds={self._kinds[number]: self._sum(self._own, self._kind == number) for number in np.unique(self._kind)},
            truncated=self._trace.truncated,
            odd_events=self._trace.odd_events,
        )

    def _union_ns(self, rows: Selection) -> int:
        chosen = self._work[rows]
        return Union.of(chosen.begin, chosen.end).total_ns

    def _idle_before(self) -> Numbers:
        """Return the idle time before each piece of work; what is idle at the end counts to the last one."""
        busy = Union.of(self._work.begin, self._work.end)
        begins, ends = busy.gaps(self._begin_ns, self._end_ns)
        idle = np.zeros(len(self._work), np.int64)
        next_piece = np.minimum(np.searchsorted(self._work.begin, ends), len(self._work) - 1)
        np.add.at(idle, next_piece, ends - begins)
        return idle

    def _causes(self) -> tuple[int, int, int]:
        """Divide the idle time: the host came late, the work was queued already, or the trace does not say."""
        if not self._work.on_device:
            return int(self._idle.sum()), 0, 0
        known = self._work.moment >= 0
        gap_begin = self._work.begin - self._idle
        late = np.clip(self._work.moment - gap_begin, 0, self._idle)
        explained = self._sum(self._idle, known)
        return self._sum(late, known), explained - self._sum(late, known), int(self._idle.sum()) - explained

    def _phases(self) -> list[BreakdownShare]:
        between = self._before_steps()
        return [self._share(number, phase, between) for number, phase in enumerate(self._attribution.phases)]

    def _before_steps(self) -> Numbers:
        """Return the part of the idle time before each piece in which a server had not yet begun the piece's step.

        It may have waited for requests. A step of training begins where the one before ends.
        """
        begins = self._attribution.steps.begin
        if not self._is_server:
            return np.zeros_like(self._idle)
        step = np.searchsorted(begins, self._work.moment, side="right") - 1
        before = self._idle.copy()
        before[-1] -= self._end_ns - self._work.end.max()  # what is idle at the end counts to the last one, too
        waited = begins[np.maximum(step, 0)] - (self._work.begin - before)
        return np.where(step >= 0, np.clip(waited, 0, before), 0)

    def _share(self, number: int, phase: str, between: Numbers) -> BreakdownShare:
        inside, category = self._places.phase == number, self._work.category
        idle_ns = self._sum(self._idle - between, inside) + (0 if phase else int(between.sum()))
        return BreakdownShare(
            phase=phase,
            steps=self._attribution.steps_of(phase),
            time_ns=self._sum(self._own, inside) + idle_ns,
            compute_ns=self._sum(self._own, inside & (category == COMPUTE)),
            communication_ns=self._sum(self._own, inside & (category == COMMUNICATION)),
            copy_ns=self._sum(self._own, inside & (category == COPY)),
            idle_ns=idle_ns,
            gemm_ns=self._sum(self._own, inside & (self._kind == self._kinds.index(GEMM))),
            collectives=self._collectives(np.flatnonzero(inside & (category == COMMUNICATION))),
        )

    def _collectives(self, rows: Numbers) -> dict[str, int]:
        """Return the exposed time of communication by what it is."""
        found: dict[str, int] = {}
        for number, chosen in rows_of(self._work.name[rows]):
            name = collective_of(self._trace.names[number])
            found[name] = found.get(name, 0) + int(self._own[rows[chosen]].sum())
        return found

    def _modules(self) -> list[ModuleTime]:
        places, paths = self._places, len(self._attribution.paths)
        group = (places.phase * paths + places.path) * 2 + places.recomputed
        group[self._work.category != COMPUTE] = -1
        return [self._module(key, rows, paths) for key, rows in rows_of(group) if key >= 0]

    def _module(self, key: int, rows: Numbers, paths: int) -> ModuleTime:
        place, recomputed = divmod(key, 2)
        phase, path = divmod(place, paths)
        return ModuleTime(
            phase=self._attribution.phases[phase],
            path=self._attribution.paths[path],
            recomputed=bool(recomputed),
            exclusive_ns=int(self._own[rows].sum()),
            work_ns=int(self._length[rows].sum()),
            gemm_ns=self._sum(self._own[rows], self._kind[rows] == self._kinds.index(GEMM)),
            pieces=len(rows),
            kinds=self._kinds_of(rows) if self._is_server else {},
        )

    def _kinds_of(self, rows: Numbers) -> dict[str, int]:
        chosen = ((self._kinds[kind], rows[of_kind]) for kind, of_kind in rows_of(self._kind[rows]))
        return {kind: time_ns for kind, found in chosen if (time_ns := int(self._own[found].sum()))}

    @property
    def _is_server(self) -> bool:
        return bool({*SERVER_PHASES} & {*self._attribution.phases})

    def _kernels(self) -> list[KernelTime]:
        totals = np.bincount(self._work.name, self._length.astype(float), len(self._trace.names)).astype(np.int64)
        calls = np.bincount(self._work.name, minlength=len(self._trace.names))
        copied = np.bincount(self._work.name, self._work.detail.astype(float), len(self._trace.names))
        return [
            KernelTime(
                name=self._trace.names[name][:LONGEST_NAME],
                kind=self._kind_of_name[name],
                calls=int(calls[name]),
                work_ns=int(totals[name]),
                copied_bytes=int(copied[name]),
            )
            for name in np.argsort(-totals, kind="stable")[:KEPT_KERNELS].tolist()
            if totals[name]
        ]

    @staticmethod
    def _sum(values: Numbers, chosen: Selection) -> int:
        return int(values[chosen].sum())
