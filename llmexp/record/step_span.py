"""A profiled step as spans: its phases, their modules, and where nothing was computed, each as long as it took.

A breakdown has sums over the profiled steps. So these are means of a step, laid end to end in the order of the
breakdown, which is not the order in which the device worked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from llmexp.record.breakdown import BreakdownShare, ModuleTime, RunBreakdown
from llmexp.record.spans import TimeSpan

# A model of many layers has thousands of modules, and nobody looks at all of them: the longest are shown.
MOST_MODULES = 100
OUTSIDE = "outside of phases"
_LAYOUT = "means of a step, laid end to end"


@dataclass
class _Module:
    """A module with those in it, and the nanoseconds of all of them."""

    name: str
    inclusive_ns: int = 0
    gemm_ns: int = 0
    inner: dict[str, _Module] = field(default_factory=dict)

    def add(self, path: Sequence[str], row: ModuleTime) -> None:
        self.inclusive_ns += row.exclusive_ns
        self.gemm_ns += row.gemm_ns
        if path:
            name, *rest = path
            self.inner.setdefault(name, _Module(name)).add(rest, row)

    def all_inner(self) -> Iterator[_Module]:
        for module in self.inner.values():
            yield module
            yield from module.all_inner()


def step_span(found: RunBreakdown, end_s: float) -> TimeSpan | None:
    """Return the mean profiled step of the first traced rank, which ends then; None for a server's unlike steps."""
    if found.is_server or not found.ranks:
        return None
    rank = found.ranks[0]
    trees = [(phase, _tree(phase.phase, rank.modules)) for phase in rank.phases if phase.time_ns]
    longest = sorted((each.inclusive_ns for _, tree in trees for each in tree.all_inner()), reverse=True)
    least_ns = longest[MOST_MODULES - 1] if len(longest) >= MOST_MODULES else 1
    scale = 1e-9 / rank.counted_steps
    start_s = end_s - rank.window_ns * scale
    phases = _end_to_end(start_s, (_phase(phase, tree, least_ns, scale) for phase, tree in trees))
    known = {"profiled_steps": rank.steps, "trace": rank.source, "layout": _LAYOUT} | found.figures
    return TimeSpan("profiled step", start_s, end_s, known, phases)


def _tree(phase: str, rows: Sequence[ModuleTime]) -> _Module:
    root = _Module(phase)
    for row in rows:
        if row.phase == phase:
            root.add(_names(row), row)
    return root


def _names(row: ModuleTime) -> list[str]:
    """Return the module's path; what is recomputed stands apart from what was computed first."""
    return [f"{name}, recomputed" if row.recomputed else name for name in row.path]


def _phase(phase: BreakdownShare, tree: _Module, least_ns: int, scale: float) -> TimeSpan:
    computed = [_module(each, least_ns, scale) for each in tree.inner.values() if each.inclusive_ns >= least_ns]
    exposed = {"communication": phase.communication_ns, "copies": phase.copy_ns, "idle": phase.idle_ns}
    waits = [TimeSpan(name, 0.0, time_ns * scale) for name, time_ns in exposed.items() if time_ns]
    parts = _end_to_end(0.0, [*computed, *waits])
    return TimeSpan(phase.phase or OUTSIDE, 0.0, phase.time_ns * scale, {"gemm_share": phase.gemm_share}, parts)


def _module(module: _Module, least_ns: int, scale: float) -> TimeSpan:
    inner = (each for each in module.inner.values() if each.inclusive_ns >= least_ns)
    parts = _end_to_end(0.0, (_module(each, least_ns, scale) for each in inner))
    known = {"gemm_share": module.gemm_ns / module.inclusive_ns}
    return TimeSpan(module.name, 0.0, module.inclusive_ns * scale, known, parts)


def _end_to_end(start_s: float, spans: Iterable[TimeSpan]) -> tuple[TimeSpan, ...]:
    """Move spans that begin at 0, so that each begins where the one before it ends."""
    placed = []
    for span in spans:
        placed.append(span.moved(start_s))
        start_s = placed[-1].end_s
    return tuple(placed)
