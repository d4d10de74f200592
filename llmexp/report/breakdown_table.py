"""Where the time of a step went as tables: phases and modules, and for one run also causes, kernels and collectives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from llmexp.record import ranges
from llmexp.record.breakdown import Breakdown, KernelTime, ModuleTime, RunBreakdown
from llmexp.report.section import Column, Detail

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
)
LAST = (OTHERS, OUTSIDE, RECOMPUTED, COMMUNICATION, COPIES, IDLE)
SMALL_SHARE = 0.01
MOST_KERNELS = 15
LONGEST_KERNEL = 60
_IDLE_ON_HOST = "idle: between operators"
Part = tuple[str, str]


def parts_ms(found: RunBreakdown, *, recomputed_apart: bool = False) -> dict[Part, float]:
    """Return the milliseconds a step of each part of each phase, as a mean over ranks; a phase's parts add up to it.

    A module's time is that of its computation without the modules in it. What backward computes once more is one part
    of its own, or with `recomputed_apart` a part for each module.
    """
    sums: defaultdict[Part, float] = defaultdict(float)
    for rank in found.ranks:
        for part, time_ns in _parts_ns(rank, recomputed_apart):
            sums[part] += time_ns / rank.counted_steps / len(found.ranks) / 1e6
    return {part: sums[part] for part in sorted(sums, key=_place(found))}


def step_ms(found: RunBreakdown) -> float:
    """Return the milliseconds a profiled step takes, as a mean over ranks."""
    return fmean(rank.window_ns / rank.counted_steps / 1e6 for rank in found.ranks)


def _parts_ns(rank: Breakdown, recomputed_apart: bool) -> Iterator[tuple[Part, int]]:
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


def _place(found: RunBreakdown) -> Callable[[Part], tuple[int, int, str]]:
    phases = list(dict.fromkeys(phase.phase or BETWEEN for rank in found.ranks for phase in rank.phases))
    phases = [phase for phase in phases if phase != BETWEEN] + [BETWEEN]

    def place(part: Part) -> tuple[int, int, str]:
        phase, label = part
        name, _, again = label.partition(", recomputed")
        order = ORDER.index(name) if name in ORDER else len(ORDER) * 3 + (LAST.index(name) if name in LAST else -1)
        return phases.index(phase), order + len(ORDER) * bool(_ or again), label

    return place


@dataclass(frozen=True)
class Profiled:
    """A run by its name, with its breakdown and the measured time of a step in seconds, where there is one."""

    name: str
    breakdown: RunBreakdown
    measured_step_s: float | None = None


def module_detail(runs: Sequence[Profiled], *, whole: bool = True) -> Detail:
    """Return the table of phases and modules with a column for each run: milliseconds a step, and percent of it.

    Without `whole`, modules that take less than SMALL_SHARE in every run are one part, and so is what is recomputed.
    """
    found = [parts_ms(run.breakdown, recomputed_apart=whole) for run in runs]
    places = [_place(run.breakdown) for run in runs]
    if not whole:
        wholes_ms = [step_ms(run.breakdown) for run in runs]
        small = {
            part
            for part in {part for each in found for part in each}
            if part[1] not in (TOTAL, *LAST)
            and all(each.get(part, 0.0) < SMALL_SHARE * ms for each, ms in zip(found, wholes_ms, strict=True))
        }
        found = [_merged(each, small) for each in found]
    parts = sorted({part for each in found for part in each}, key=lambda part: _first_place(part, found, places))
    phases = [part[0] if part[1] == TOTAL else "" for part in parts]
    columns = [
        Column("phase", (*phases, "step", ""), left=True),
        Column("part", (*(part[1] for part in parts), "profiled", "measured (profiled over it)"), left=True),
    ]
    for run, times in zip(runs, found, strict=True):
        whole_ms = step_ms(run.breakdown)
        cells = [_share(times.get(part), whole_ms) for part in parts]
        columns.append(Column(f"{run.name} ms", (*cells, f"{whole_ms:,.2f}", _measured(run, whole_ms))))
    return Detail("where the time of a profiled step went", columns, _legend(runs))


def _merged(times: Mapping[Part, float], small: Collection[Part]) -> dict[Part, float]:
    merged: defaultdict[Part, float] = defaultdict(float)
    for part, time_ms in times.items():
        merged[(part[0], OTHERS) if part in small else part] += time_ms
    return merged


def _first_place(
    part: Part, found: Sequence[Mapping[Part, float]], places: Sequence[Callable[[Part], tuple[int, int, str]]]
) -> tuple[int, int, str]:
    return next(place(part) for times, place in zip(found, places, strict=True) if part in times)


def _share(time_ms: float | None, whole_ms: float) -> str:
    return "" if time_ms is None else f"{time_ms:,.2f} ({100 * time_ms / whole_ms:.1f}%)"


def _measured(run: Profiled, whole_ms: float) -> str:
    if run.measured_step_s is None:
        return ""
    return f"{1e3 * run.measured_step_s:,.2f} ({whole_ms / run.measured_step_s / 10 - 100:+.0f}%)"


def _legend(runs: Sequence[Profiled]) -> list[str]:
    remarks = [f"{run.name}: {run.breakdown.remark}" for run in runs if run.breakdown.remark]
    return [
        "ms a step and rank, and percent of the profiled step; a module's computation without the modules in it, in "
        "backward by the module whose forward it is",
        "exposed communication and copies are those that no computation hides; the parts of a phase add up to it",
        *remarks,
    ]


def causes_detail(run: Profiled) -> Detail:
    """Return what the device did, and why it was idle."""
    ranks = run.breakdown.ranks
    names: dict[str, Callable[[Breakdown], int]] = {
        "computing": lambda rank: rank.compute_ns,
        COMMUNICATION: lambda rank: rank.exposed_communication_ns,
        COPIES: lambda rank: rank.exposed_copy_ns,
        _IDLE_ON_HOST if not ranks[0].on_device else "idle: the host came too late": lambda rank: rank.idle_late_ns,
        "idle: work was queued already": lambda rank: rank.idle_queued_ns,
        "idle: the trace does not say why": lambda rank: rank.idle_unexplained_ns,
        "communication in all": lambda rank: rank.communication_ns,
        "copies in all": lambda rank: rank.copy_ns,
    }
    shown = {name: fmean(of(rank) / rank.counted_steps / 1e6 for rank in ranks) for name, of in names.items()}
    shown = {name: value for name, value in shown.items() if value}
    whole_ms = step_ms(run.breakdown)
    columns = [
        Column("what", tuple(shown), left=True),
        Column("ms/step" if ranks[0].steps else "ms", tuple(_share(value, whole_ms) for value in shown.values())),
    ]
    return Detail(f"{run.name}: what the {'device' if ranks[0].on_device else 'processor'} did", columns, [])


def kinds_detail(run: Profiled) -> Detail:
    """Return the time by kind of work."""
    sums: Counter[str] = Counter()
    for rank in run.breakdown.ranks:
        for kind, time_ns in rank.kinds.items():
            sums[kind] += time_ns
    busy = sum(sums.values()) or 1
    shown = sums.most_common()
    columns = [
        Column("kind", tuple(kind for kind, _ in shown), left=True),
        Column("%", tuple(f"{100 * time_ns / busy:.1f}" for _, time_ns in shown)),
    ]
    return Detail("by kind of work, in percent of the busy time", columns, [])


def kernels_detail(run: Profiled) -> Detail:
    """Return the costliest kernels or operators of the first rank."""
    rank = run.breakdown.ranks[0]
    shown = rank.kernels[:MOST_KERNELS]
    columns = [
        Column("kernel" if rank.on_device else "operator", tuple(_cut(each.name) for each in shown), left=True),
        Column("kind", tuple(each.kind for each in shown), left=True),
        Column("calls", tuple(f"{each.calls:,}" for each in shown)),
        Column("ms", tuple(f"{each.work_ns / 1e6:,.3f}" for each in shown)),
        Column("us/call", tuple(f"{each.work_ns / each.calls / 1e3:,.1f}" for each in shown)),
        Column("GB/s", tuple(map(_bandwidth, shown))),
    ]
    return Detail(f"costliest {'kernels' if rank.on_device else 'operators'}, {rank.source}", columns, [])


def _bandwidth(kernel: KernelTime) -> str:
    return f"{kernel.copied_bytes / max(1, kernel.work_ns):,.2f}" if kernel.copied_bytes else ""


def collectives_detail(run: Profiled) -> Detail | None:
    """Return the collectives, with the waiting for late ranks apart; None where there were none."""
    shown = run.breakdown.collectives
    if not shown:
        return None
    columns = [
        Column("collective", tuple(_cut(each.name) for each in shown), left=True),
        Column("calls", tuple(f"{each.calls:,}" for each in shown)),
        Column("ms", tuple(f"{each.work_ns / 1e6:,.2f}" for each in shown)),
        Column("waiting", tuple(_ms(each.waited_ns) for each in shown)),
        Column("pure", tuple(_ms(each.pure_ns) for each in shown)),
    ]
    legend = "waiting: ms until the last rank came, pure: ms from then on; ? where the ranks' calls do not match"
    return Detail("collectives, as a mean over ranks", columns, [legend])


def _ms(time_ns: int | None) -> str:
    return "?" if time_ns is None else f"{time_ns / 1e6:,.2f}"


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_KERNEL else f"{name[: LONGEST_KERNEL - 1]}…"


def difference_detail(a: Profiled, b: Profiled) -> Detail:
    """Return which parts made the difference between two runs, the largest first, each with its share of all of it."""
    before, after = (parts_ms(run.breakdown, recomputed_apart=True) for run in (a, b))
    whole_ms = step_ms(b.breakdown) - step_ms(a.breakdown)
    deltas = {
        part: after.get(part, 0.0) - before.get(part, 0.0)
        for part in dict.fromkeys((*before, *after))
        if part[1] != TOTAL
    }
    return _differences("which parts made the difference", deltas, before, after, whole_ms)


def kernel_difference_detail(a: Profiled, b: Profiled) -> Detail:
    """Return which kernels or operators made the difference; their time counts in full where it overlaps."""
    before, after = (_kernels_ms(run.breakdown) for run in (a, b))
    deltas = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in dict.fromkeys((*before, *after))}
    whole_ms = step_ms(b.breakdown) - step_ms(a.breakdown)
    return _differences("which kernels made it", deltas, before, after, whole_ms)


def _kernels_ms(found: RunBreakdown) -> dict[Part, float]:
    sums: defaultdict[Part, float] = defaultdict(float)
    for rank in found.ranks:
        for kernel in rank.kernels:
            sums[kernel.kind, _cut(kernel.name)] += kernel.work_ns / rank.counted_steps / len(found.ranks) / 1e6
    return sums


def _differences(
    title: str, deltas: Mapping[Part, float], before: Mapping[Part, float], after: Mapping[Part, float], whole_ms: float
) -> Detail:
    shown = sorted(deltas, key=lambda part: -abs(deltas[part]))[:MOST_KERNELS]
    columns = [
        Column("", tuple(part[0] for part in shown), left=True),
        Column("what", tuple(part[1] for part in shown), left=True),
        Column("a ms", tuple(f"{before.get(part, 0):,.2f}" for part in shown)),
        Column("b ms", tuple(f"{after.get(part, 0):,.2f}" for part in shown)),
        Column("b-a ms", tuple(f"{deltas[part]:+,.2f}" for part in shown)),
        Column("%", tuple(f"{round(100 * deltas[part] / whole_ms)}" if whole_ms else "" for part in shown)),
    ]
    return Detail(
        title,
        columns,
        [f"b's step takes {whole_ms:+,.2f} ms, of which % is the share; ms a step, as a mean over ranks"],
    )
