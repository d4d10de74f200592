"""Which phase and which module a moment of the host belongs to.

In forward the ranges that are open say it, in backward the operator of forward whose gradient is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from llmexp.errors import TraceError
from llmexp.record.ranges import BMM0, BMM1, CORE, MODULE, OUTPUT, PHASE_END, SOFTMAX, STEP
from llmexp.traces.events import Table, Trace, empty_table
from llmexp.traces.intervals import Innermost, outer_first
from llmexp.traces.server_names import INSIDE, ROWS
from llmexp.traces.times import Numbers

Path = tuple[str, ...]
NO_PHASE = ""
# A run of ours has far fewer of each.
MOST_STEPS, MOST_PHASES, MOST_PATHS, DEEPEST = 10_000, 1_000, 10_000, 100
SOFTMAX_OPERATORS = ("aten::softmax", "aten::_softmax", "aten::_safe_softmax")


@dataclass(frozen=True)
class Places:
    """For each moment the numbers of its phase and of its module, and whether it repeats a forward in backward."""

    phase: Numbers
    path: Numbers
    recomputed: Numbers


class Attribution:
    """The phases and modules of one trace, by the numbers that Places has.

    The first phase and the first path are empty: outside of every step, and outside of every module. Raises TraceError
    where there are more of them than in any run.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace, self._names = trace, list(trace.names)
        self.phases: list[str] = [NO_PHASE]
        self.paths: list[Path] = [()]
        self._numbers_of_paths: dict[Path, int] = {(): 0}
        self.steps = self._ranges_named(STEP).in_order()
        _check(len(self.steps), MOST_STEPS, "steps")
        self._steps_of: dict[str, int] = {}
        self._phase_begins, self._phase_numbers = self._phase_changes()
        self._modules = self._with_parts_of_core(self._ranges_named(MODULE))
        self._innermost = Innermost(self._modules)
        self._numbers = self._numbered_paths()
        self._gradients, forward = self._linked()
        self._innermost_gradient = Innermost(self._gradients)
        self._forward_paths = self._path_at(forward.lane, forward.begin)

    def steps_of(self, phase: str) -> int:
        """Return how many steps have this phase."""
        return self._steps_of.get(phase, 0)

    def of(self, lane: Numbers, moment: Numbers) -> Places:
        """Return the places of moments of the host's threads."""
        here, gradient = self._innermost.at(lane, moment), self._innermost_gradient.at(lane, moment)
        in_gradient, in_module = gradient >= 0, here >= 0
        recomputed = np.zeros(len(moment), bool)
        both = np.flatnonzero(in_gradient & in_module)
        recomputed[both] = self._modules.begin[here[both]] >= self._gradients.begin[gradient[both]]
        path = self._path_at(lane, moment)
        again = np.flatnonzero(recomputed)
        path[again] = self._below(self._forward_paths[gradient[again]], path[again])
        of_forward = np.flatnonzero(in_gradient & ~recomputed)
        path[of_forward] = self._forward_paths[gradient[of_forward]]
        return Places(self._phase_at(moment), path, recomputed)

    def _phase_at(self, moment: Numbers) -> Numbers:
        if not len(self._phase_begins):
            return np.zeros(len(moment), np.int64)
        index = np.searchsorted(self._phase_begins, moment, side="right") - 1
        return np.where(index >= 0, self._phase_numbers[index], 0)

    def _path_at(self, lane: Numbers, moment: Numbers) -> Numbers:
        row = self._innermost.at(lane, moment)
        return np.where(row >= 0, self._numbers[row], 0) if len(self._numbers) else np.zeros(len(moment), np.int64)

    def _below(self, forward: Numbers, path: Numbers) -> Numbers:
        """Return the whole path of what is recomputed: checkpoints leave out the module that they are around.

        It lies where the forward did whose gradient waits for it.
        """
        whole = path.copy()
        for outer, inner in {*zip(forward.tolist(), path.tolist(), strict=True)}:
            known, tail = self.paths[outer], self.paths[inner]
            wholes = [(*known[:end], *tail) for end in range(len(known), 0, -1)]
            found = next((number for each in wholes if (number := self._numbers_of_paths.get(each))), inner)
            whole[(forward == outer) & (path == inner)] = found
        return whole

    def _with_parts_of_core(self, modules: Table) -> Table:
        """Divide core attention that has a softmax of its own: what is before it, the softmax, and what follows."""
        cores = modules[np.isin(modules.name, self._named(MODULE + CORE))]
        softmax = self._operators(self._named(*SOFTMAX_OPERATORS)).in_order()
        row = Innermost(cores).at(softmax.lane, softmax.begin)
        row, first = np.unique(row, return_index=True)
        row, first = row[row >= 0], first[row >= 0]
        core, softmax = cores[row], softmax[first]
        parts = (
            (BMM0, core.begin, softmax.begin),
            (SOFTMAX, softmax.begin, softmax.end),
            (BMM1, softmax.end, core.end),
        )
        rows = [modules]
        for name, begin, end in parts:
            rows.append(replace(core, begin=begin, end=end, name=np.full(len(core), len(self._names), np.int32)))
            self._names.append(MODULE + name)
        return Table(*map(np.concatenate, zip(*(vars(part).values() for part in rows), strict=True)))

    def _phase_changes(self) -> tuple[Numbers, Numbers]:
        """Return the moments at which phases begin, and the phases' numbers from then on."""
        ends = self._ranges_named(PHASE_END).in_order()
        changes: list[tuple[int, int]] = []
        for begin, end in zip(self.steps.begin.tolist(), self.steps.end.tolist(), strict=True):
            for row in np.flatnonzero((ends.begin >= begin) & (ends.end <= end)).tolist():
                phase = self._trace.names[ends.name[row]].removeprefix(PHASE_END)
                if phase not in self.phases:
                    self.phases.append(phase)
                    _check(len(self.phases), MOST_PHASES, "phases")
                self._steps_of[phase] = self._steps_of.get(phase, 0) + 1
                changes.append((begin, self.phases.index(phase)))
                begin = int(ends.end[row])
            changes.append((begin, 0))
        moments, numbers = np.array(changes, np.int64).reshape(-1, 2).T
        return moments, numbers

    def _linked(self) -> tuple[Table, Table]:
        """Return the operators of backward that have one of forward, and where in forward that was."""
        forward, backward = self._trace.forward, self._trace.backward
        if not len(forward):  # a file that was cut off may have the other ends
            return empty_table(), empty_table()
        order = np.argsort(forward.key, kind="stable")
        index = order[np.minimum(np.searchsorted(forward.key[order], backward.key), len(forward) - 1)]
        matched = np.flatnonzero(forward.key[index] == backward.key)
        operator = self._operator_at(backward.lane[matched], backward.begin[matched])
        known = operator >= 0
        return self._trace.operators[operator[known]], forward[index[matched][known]]

    def _operator_at(self, lane: Numbers, moment: Numbers) -> Numbers:
        """Return the row of the longest operator that begins at exactly this moment, or -1."""
        operators, found = self._trace.operators, np.full(len(moment), -1, np.int64)
        order = outer_first(operators) if len(moment) else moment
        for number in np.unique(lane).tolist():
            rows = order[operators.lane[order] == number]
            here = np.flatnonzero(lane == number)
            if len(rows):
                index = np.minimum(np.searchsorted(operators.begin[rows], moment[here]), len(rows) - 1)
                found[here] = np.where(operators.begin[rows[index]] == moment[here], rows[index], -1)
        return found

    def _numbered_paths(self) -> Numbers:
        paths: dict[int, Path] = {-1: ()}
        for row in outer_first(self._modules).tolist():
            outer = paths[int(self._innermost.around[row])]
            name = self._names[self._modules.name[row]].removeprefix(MODULE)
            if name == ROWS:
                name = next((INSIDE[part] for part in reversed(outer) if part in INSIDE), OUTPUT)
            paths[row] = outer if outer[-1:] == (name,) or len(outer) == DEEPEST else (*outer, name)
        return np.array([self._number(paths[row]) for row in range(len(self._modules))], np.int64)

    def _number(self, path: Path) -> int:
        if path not in self._numbers_of_paths:
            self._numbers_of_paths[path] = len(self.paths)
            self.paths.append(path)
            _check(len(self.paths), MOST_PATHS, "modules")
        return self._numbers_of_paths[path]

    def _ranges_named(self, prefix: str) -> Table:
        wanted = [number for number, name in enumerate(self._trace.names) if name.startswith(prefix)]
        return self._trace.ranges[np.isin(self._trace.ranges.name, wanted)]

    def _named(self, *names: str) -> list[int]:
        return [number for number, name in enumerate(self._trace.names) if name in names]

    def _operators(self, names: list[int]) -> Table:
        return self._trace.operators[np.isin(self._trace.operators.name, names)]


def _check(found: int, most: int, what: str) -> None:
    if found > most:
        raise TraceError(f"has more than {most} {what}, which is more than is read")
