"""The table of phases and modules, with a column for each run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from llmexp.record.digits import three_digits
from llmexp.report.breakdown.parts import (
    LAST,
    OTHERS,
    TOTAL,
    BreakdownPart,
    Place,
    Profiled,
    parts_ms,
    place_in,
    share_cell,
    step_ms,
)
from llmexp.report.columns import Column, ReportTable

SMALL_SHARE = 0.01
_HEADINGS = (
    "ms a step and rank, and percent of the profiled step; a module's computation without the modules in it, in "
    "backward by the module whose forward it is",
    "exposed communication and copies are those that no computation hides; the parts of a phase add up to it",
)


def module_table(runs: Sequence[Profiled], *, whole: bool = True) -> ReportTable:
    """Return the table of phases and modules with a column for each run: milliseconds a step, and percent of it.

    Without `whole`, modules that take less than SMALL_SHARE in every run are one part, and so is what is recomputed.
    """
    found = [parts_ms(run.breakdown, recomputed_apart=whole) for run in runs]
    places = [place_in(run.breakdown) for run in runs]
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
        cells = [share_cell(times.get(part), whole_ms) for part in parts]
        columns.append(Column(f"{run.name} ms", (*cells, three_digits(whole_ms, ",.2f"), _measured(run, whole_ms))))
    return ReportTable("where the time of a profiled step went", columns, _legend(runs), explained=_HEADINGS)


def _merged(times: Mapping[BreakdownPart, float], small: Collection[BreakdownPart]) -> dict[BreakdownPart, float]:
    merged: defaultdict[BreakdownPart, float] = defaultdict(float)
    for part, time_ms in times.items():
        merged[(part[0], OTHERS) if part in small else part] += time_ms
    return merged


def _first_place(
    part: BreakdownPart,
    found: Sequence[Mapping[BreakdownPart, float]],
    places: Sequence[Callable[[BreakdownPart], Place]],
) -> Place:
    return next(place(part) for times, place in zip(found, places, strict=True) if part in times)


def _measured(run: Profiled, whole_ms: float) -> str:
    if run.measured_step_s is None:
        return ""
    return f"{three_digits(1e3 * run.measured_step_s, ',.2f')} ({whole_ms / run.measured_step_s / 10 - 100:+.0f}%)"


def _legend(runs: Sequence[Profiled]) -> list[str]:
    remarks = [f"{run.name}: {run.breakdown.remark}" for run in runs if run.breakdown.remark]
    return [*_HEADINGS, *remarks]
