"""One step of a rank as a timeline: what ran when, by phase, module and kind of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmexp.record.timeline import COMMUNICATION, COMPUTATION, COPIES, IDLE, PHASE, Timeline, TimelineBars
from llmexp.traces import kinds
from llmexp.traces.breakdown import Profile
from llmexp.traces.events import Selection
from llmexp.traces.intervals import Union
from llmexp.traces.times import Numbers

OUTSIDE, RECOMPUTED = "outside modules", "recomputed forward"
# Work of one label that is closer than this share of the step is one bar: a picture has fewer pixels.
NEAR = 1 / 4000


def timeline(profile: Profile) -> Timeline:
    """Return the last step of a profile, or all of a trace that marks no steps."""
    return _Drawn(profile).timeline()


@dataclass(frozen=True)
class _Window:
    begin_ns: int
    end_ns: int

    def bars(self, begin: Numbers, end: Numbers) -> TimelineBars:
        """Return begins and lengths in ms from the window's begin."""
        starts, lengths = (begin - self.begin_ns) / 1e6, (end - begin) / 1e6
        return list(zip(starts.tolist(), lengths.tolist(), strict=True))


class _Drawn:
    """The work of the last step of a profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile, steps, work = profile, profile.attribution.steps, profile.work
        # A trace that was cut off may have no work of its last steps.
        begun = steps[np.flatnonzero(steps.begin <= work.moment.max())]
        if len(begun):
            work = work[np.flatnonzero(work.moment >= begun.begin.max())]
        self._work, self._step, self._steps = work, len(begun), len(steps)
        begins, ends = [work.begin.min()], [work.end.max()]
        if len(begun) and not work.on_device:
            begins, ends = [*begins, begun.begin.max()], [*ends, begun.end.max()]
        self._window = _Window(int(min(begins)), int(max(ends)))
        self._places = profile.attribution.of(work.lane, work.moment)

    def timeline(self) -> Timeline:
        """Return the bars of all rows."""
        bars: dict[tuple[str, str], TimelineBars] = {}
        computing = self._work.category == kinds.COMPUTE
        bars |= self._row(PHASE, self._phases(), computing, self._length_ns)
        bars |= self._row(COMPUTATION, self._modules(), computing, round(self._length_ns * NEAR))
        for row, category in ((COMMUNICATION, kinds.COMMUNICATION), (COPIES, kinds.COPY)):
            bars |= self._row(row, [row] * len(self._work), self._work.category == category, 0)
        busy = Union.of(self._work.begin, self._work.end)
        idle = self._window.bars(*busy.gaps(self._window.begin_ns, self._window.end_ns))
        if idle:
            bars[IDLE, IDLE] = idle
        step = f"step {self._step} of {self._steps}" if self._steps else ""
        return Timeline(self._profile.source, step, self._length_ns / 1e6, bars)

    @property
    def _length_ns(self) -> int:
        return self._window.end_ns - self._window.begin_ns

    def _phases(self) -> list[str]:
        phases = self._profile.attribution.phases
        places = zip(self._places.phase.tolist(), self._places.recomputed.tolist(), strict=True)
        return [RECOMPUTED if again else phases[phase] for phase, again in places]

    def _modules(self) -> list[str]:
        """Return each piece's module, or in a trace without modules its kind of work."""
        paths = self._profile.attribution.paths
        if len(paths) > 1:
            return [paths[path][-1] if paths[path] else OUTSIDE for path in self._places.path.tolist()]
        names = self._profile.trace.names
        known = {name: kinds.kind_of(names[name]) for name in np.unique(self._work.name).tolist()}
        return [known[name] for name in self._work.name.tolist()]

    def _row(
        self, row: str, labels: Sequence[str], chosen: Selection, gap_ns: int
    ) -> dict[tuple[str, str], TimelineBars]:
        """Return the bars of a row; consecutive work of one label is one bar up to a gap of this length."""
        names = [name for name in dict.fromkeys(labels) if name]
        numbers = {name: number for number, name in enumerate(names)}
        every: Numbers = np.array([numbers.get(label, -1) for label in labels], np.int64)
        begin, end, number = _merged(self._work.begin[chosen], self._work.end[chosen], every[chosen], gap_ns)
        found = {name: np.flatnonzero(number == numbers[name]) for name in names}
        return {(row, name): self._window.bars(begin[rows], end[rows]) for name, rows in found.items() if len(rows)}


def _merged(begin: Numbers, end: Numbers, number: Numbers, gap_ns: int) -> tuple[Numbers, Numbers, Numbers]:
    """Join what follows each other with the same number and no larger gap; all in order of begin."""
    if not len(begin):
        return begin, end, number
    latest = np.maximum.accumulate(end)
    is_first = np.concatenate(([True], (number[1:] != number[:-1]) | (begin[1:] > latest[:-1] + gap_ns)))
    first = np.flatnonzero(is_first)
    return begin[first], np.maximum.reduceat(end, first), number[first]
