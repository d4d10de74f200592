"""What makes the difference of two runs: their parts and their kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from llmexp.record.breakdown import RunBreakdown
from llmexp.record.digits import three_digits
from llmexp.report.breakdown.kernels import MOST_KERNELS, cut
from llmexp.report.breakdown.parts import TOTAL, BreakdownPart, Profiled, parts_ms, step_ms
from llmexp.report.columns import Column, ReportTable

MS = ",.2f"
# Of a millisecond: a trace tells nanoseconds, and what is less is a sum's rounding.
PLACES = 6


def difference_table(a: Profiled, b: Profiled) -> ReportTable:
    """Return which parts made the difference between two runs, the largest first, each with its share of all of it."""
    before, after = (parts_ms(run.breakdown, recomputed_apart=True) for run in (a, b))
    whole_ms = step_ms(b.breakdown) - step_ms(a.breakdown)
    deltas = {
        part: after.get(part, 0.0) - before.get(part, 0.0)
        for part in dict.fromkeys((*before, *after))
        if part[1] != TOTAL
    }
    return _differences("which parts made the difference", deltas, before, after, whole_ms)


def kernel_difference_table(a: Profiled, b: Profiled) -> ReportTable:
    """Return which kernels or operators made the difference; their time counts in full where it overlaps."""
    before, after = (_kernels_ms(run.breakdown) for run in (a, b))
    deltas = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in dict.fromkeys((*before, *after))}
    whole_ms = step_ms(b.breakdown) - step_ms(a.breakdown)
    return _differences("which kernels made it", deltas, before, after, whole_ms)


def _kernels_ms(found: RunBreakdown) -> dict[BreakdownPart, float]:
    sums: defaultdict[BreakdownPart, float] = defaultdict(float)
    for rank in found.ranks:
        for kernel in rank.kernels:
            sums[kernel.kind, cut(kernel.name)] += kernel.work_ns / rank.counted_steps / len(found.ranks) / 1e6
    return sums


def _differences(
    title: str,
    deltas: Mapping[BreakdownPart, float],
    before: Mapping[BreakdownPart, float],
    after: Mapping[BreakdownPart, float],
    whole_ms: float,
) -> ReportTable:
    shown = sorted(deltas, key=lambda part: -abs(deltas[part]))[:MOST_KERNELS]
    columns = [
        Column("", tuple(part[0] for part in shown), left=True),
        Column("what", tuple(part[1] for part in shown), left=True),
        Column("a ms", tuple(three_digits(before.get(part, 0.0), MS) for part in shown)),
        Column("b ms", tuple(three_digits(after.get(part, 0.0), MS) for part in shown)),
        Column("b-a ms", tuple(_signed(deltas[part]) for part in shown)),
        Column("%", tuple(f"{round(100 * deltas[part] / whole_ms)}" if whole_ms else "" for part in shown)),
    ]
    return ReportTable(
        title,
        columns,
        [f"b's step takes {_signed(whole_ms)} ms, of which % is the share; ms a step, as a mean over ranks"],
    )


def _signed(difference_ms: float) -> str:
    known = round(difference_ms, PLACES)
    return f"{'-' if known < 0 else '+'}{three_digits(abs(known), MS)}"
