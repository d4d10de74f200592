"""The table of a server's steps by what they do, prefill or decode, with a column for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmexp.record.digits import three_digits
from llmexp.report.breakdown.parts import (
    BETWEEN,
    LAST,
    OTHERS,
    TOTAL,
    BreakdownPart,
    Profiled,
    parts_ms,
    place_in,
    share_cell,
)
from llmexp.report.columns import Column, ReportTable

SMALL_SHARE = 0.01
STEPS = "steps"


def server_table(runs: Sequence[Profiled], *, whole: bool = False) -> ReportTable:
    """Return milliseconds of one step of each phase, and each part's percentage of them.

    Without `whole`, parts that take less than SMALL_SHARE of their phase in every run are one part.
    """
    found = [parts_ms(run.breakdown) for run in runs]
    small = set() if whole else {part for each in found for part in each if _is_small(part, found)}
    shown = [_merged(times, small) for times in found]
    every = {part for times in shown for part in times}
    rows = [row for phase in _phases(runs) for row in _rows(phase, runs, every)]
    columns = [
        Column("phase", tuple(phase if part == STEPS else "" for phase, part in rows), left=True),
        Column("part", tuple("one step" if part == TOTAL else part for _, part in rows), left=True),
    ]
    for run, times in zip(runs, shown, strict=True):
        columns.append(Column(f"{run.name} ms", tuple(_cell(row, run, times) for row in rows)))
    return ReportTable("where the time of a profiled server's steps went", columns, _legend(runs))


def _phases(runs: Sequence[Profiled]) -> list[str]:
    names = [phase.phase for run in runs for rank in run.breakdown.ranks for phase in rank.phases if phase.phase]
    return list(dict.fromkeys(names))


def _rows(phase: str, runs: Sequence[Profiled], every: set[BreakdownPart]) -> list[BreakdownPart]:
    own = [part for part in every if part[0] == phase and part[1] != TOTAL]
    place = place_in(runs[0].breakdown)
    ordered = sorted(own, key=lambda part: place((_phases(runs[:1])[0], part[1])))
    return [(phase, STEPS), (phase, TOTAL), *ordered]


def _is_small(part: BreakdownPart, found: Sequence[Mapping[BreakdownPart, float]]) -> bool:
    wholes = [(times, times.get((part[0], TOTAL), 0.0)) for times in found]
    return part[1] not in (TOTAL, *LAST) and all(times.get(part, 0.0) < SMALL_SHARE * ms for times, ms in wholes if ms)


def _merged(times: Mapping[BreakdownPart, float], small: set[BreakdownPart]) -> dict[BreakdownPart, float]:
    merged: dict[BreakdownPart, float] = {}
    for part, time_ms in times.items():
        place = (part[0], OTHERS) if part in small else part
        merged[place] = merged.get(place, 0.0) + time_ms
    return merged


def _cell(row: BreakdownPart, run: Profiled, times: Mapping[BreakdownPart, float]) -> str:
    phase, part = row
    if part == STEPS:
        return str(steps_of(run, phase) or "")
    whole_ms = times.get((phase, TOTAL))
    return (
        ""
        if whole_ms is None
        else three_digits(whole_ms, ",.2f")
        if part == TOTAL
        else share_cell(times.get(row), whole_ms)
    )


def steps_of(run: Profiled, phase: str) -> int:
    """Return how many steps of this phase the first rank had."""
    return sum(each.steps for each in run.breakdown.ranks[0].phases if each.phase == phase)


def _legend(runs: Sequence[Profiled]) -> list[str]:
    between = []
    for run in runs:
        window_ns = sum(rank.window_ns for rank in run.breakdown.ranks)
        left_ns = sum(each.time_ns for rank in run.breakdown.ranks for each in rank.phases if not each.phase)
        between.append(f"{run.name} {100 * left_ns / window_ns:.0f}%")
    remarks = [f"{run.name}: {run.breakdown.remark}" for run in runs if run.breakdown.remark]
    return [
        "ms of one step of its kind on a rank, and percent of them; a module's computation without the modules in it",
        "prefill: steps with tokens of prompts only; decode: with one new token of each request; or steps with both",
        f"{BETWEEN.replace('phases', 'steps')}, of the profiled time: {', '.join(between)}",
        *remarks,
    ]
