"""The parts of a profiled step: their names, their order, and the milliseconds of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

from llmexp.errors import RecordError
from llmexp.record import ranges
from llmexp.record.breakdown import Breakdown, ModuleTime, RunBreakdown, read_breakdown
from llmexp.record.digits import three_digits
from llmexp.report.row import Row

OUTSIDE, RECOMPUTED, OTHERS = "outside modules", "recomputed forward", "other parts"
COMMUNICATION, COPIES, IDLE, TOTAL = "exposed communication", "exposed copies", "idle", "whole phase"
BETWEEN = "between phases"
# The order in which a step uses them.
ORDER = (
    TOTAL,
    ranges.EMBEDDING,
    ranges.NORM,
    ranges.QKV,
    ranges.ROPE,
    ranges.BMM0,
    ranges.SOFTMAX,
    ranges.BMM1,
    ranges.CORE,
    ranges.OUTPUT,
    ranges.ATTENTION,
    ranges.ROUTER,
    ranges.EXPERTS,
    ranges.GATE,
    ranges.UP,
    ranges.GATE_AND_UP,
    ranges.ACTIVATION,
    ranges.DOWN,
    ranges.MLP,
    ranges.LORA,
    ranges.LAYER,
    f"{ranges.LAYER} (compiled)",
    ranges.LM_HEAD,
    ranges.LOSS,
    ranges.SAMPLING,
)
LAST = (OTHERS, OUTSIDE, RECOMPUTED, COMMUNICATION, COPIES, IDLE)
BreakdownPart = tuple[str, str]
Place = tuple[int, int, str]


@dataclass(frozen=True)
class Profiled:
    """A run by its name, with its breakdown and the measured time of a step in seconds, where there is one."""

    name: str
    breakdown: RunBreakdown
    measured_step_s: float | None = None


def parts_ms(found: RunBreakdown, *, recomputed_apart: bool = False) -> dict[BreakdownPart, float]:
    """Return the milliseconds a step of each part of each phase, as a mean over ranks; a phase's parts add up to it.

    A module's time is that of its computation without the modules in it. What backward computes once more is one part
    of its own, or with `recomputed_apart` a part for each module. A server's step has one phase, and its parts are
    those of a step with that phase.
    """
    sums: defaultdict[BreakdownPart, float] = defaultdict(float)
    for rank in found.ranks:
        steps = {phase.phase: phase.steps for phase in rank.phases} if found.is_server else {}
        for part, time_ns in _parts_ns(rank, recomputed_apart):
            sums[part] += time_ns / (steps.get(part[0]) or rank.counted_steps) / len(found.ranks) / 1e6
    return {part: sums[part] for part in sorted(sums, key=place_in(found))}


def step_ms(found: RunBreakdown) -> float:
    """Return the milliseconds a profiled step takes, as a mean over ranks."""
    return fmean(rank.window_ns / rank.counted_steps / 1e6 for rank in found.ranks)


def _parts_ns(rank: Breakdown, recomputed_apart: bool) -> Iterator[tuple[BreakdownPart, int]]:
    for phase in rank.phases:
        named = phase.phase or BETWEEN
        for label, time_ns in (
            (TOTAL, phase.time_ns),
            (COMMUNICATION, phase.communication_ns),
            (COPIES, phase.copy_ns),
            (IDLE, phase.idle_ns),
        ):
            if time_ns:
                yield (named, label), time_ns
    for module in rank.modules:
        yield (module.phase or BETWEEN, _label(module, recomputed_apart)), module.exclusive_ns


def _label(module: ModuleTime, recomputed_apart: bool) -> str:
    name = module.path[-1] if module.path else OUTSIDE
    if not module.recomputed:
        return name
    return f"{name}, recomputed" if recomputed_apart else RECOMPUTED


def place_in(found: RunBreakdown) -> Callable[[BreakdownPart], Place]:
    """Return what sorts parts in the order in which the step comes to them."""
    phases = list(dict.fromkeys(phase.phase or BETWEEN for rank in found.ranks for phase in rank.phases))
    phases = [phase for phase in phases if phase != BETWEEN] + [BETWEEN]

    def place(part: BreakdownPart) -> Place:
        phase, label = part
        name, _, again = label.partition(", recomputed")
        order = ORDER.index(name) if name in ORDER else len(ORDER) * 3 + (LAST.index(name) if name in LAST else -1)
        return phases.index(phase), order + len(ORDER) * bool(_ or again), label

    return place


def share_cell(time_ms: float | None, whole_ms: float) -> str:
    """Return milliseconds with their percentage of the whole; empty where there are none."""
    return "" if time_ms is None else f"{three_digits(time_ms, ',.2f')} ({100 * time_ms / whole_ms:.1f}%)"


def breakdown_of(row: Row) -> RunBreakdown | None:
    """Return a run's breakdown; `llmexp trace` says why one cannot be read, which must not cost the report."""
    try:
        return read_breakdown(row.folder)
    except RecordError:
        return None
