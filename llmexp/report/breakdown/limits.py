"""What bounds a step, and what it would take at the limits of the machine, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from llmexp.analysis.step_limits import PARTS, StepLimits, step_limits
from llmexp.record.digits import three_digits
from llmexp.report.breakdown.parts import Profiled
from llmexp.report.columns import Column, ReportTable

BOUND, BEST = "bound by", "best step"
_SHARES = "ms of a measured step, by the shares of the profiled one; communication and copies where nothing hides them"
_AT_LIMIT = "at limit: the same work at the rates of task=micro, where the trace tells the work; communication in all"
_BEST_STEP = f"{BEST}: products at the limit, other computation as it was, communication and copies hidden, no idling"


def limits_table(runs: Sequence[Profiled]) -> ReportTable:
    """Return the parts of each run's step with their times at the limits, what bounds it, and its best step."""
    found = [step_limits(run.breakdown, run.measured_step_s) for run in runs]
    lines = list(_lines(found))
    columns = [
        Column("part", tuple(name for name, _ in lines), left=True),
        *(Column(run.name, tuple(cell(limits) for _, cell in lines)) for run, limits in zip(runs, found, strict=True)),
    ]
    return ReportTable(
        "what bounds a step", columns, list(_legend(runs, found)), explained=[_SHARES, _AT_LIMIT, _BEST_STEP]
    )


def _lines(found: Sequence[StepLimits]) -> Iterator[tuple[str, Callable[[StepLimits], str]]]:
    """Yield the lines of the table: each part that some run has, then what bounds a step, and the best one."""
    for name in PARTS:
        parts = [part for limits in found if (part := limits.part(name))]
        if parts:
            yield name, partial(_cell, name)
        if any(part.at_limit_s is not None for part in parts):
            yield "\u00a0\u00a0at the limit", partial(_at_limit, name)
    yield BOUND, lambda limits: ", ".join(limits.bounds)
    if any(limits.best_s for limits in found):
        yield BEST, _best


def _cell(name: str, limits: StepLimits) -> str:
    part = limits.part(name)
    return f"{three_digits(1e3 * part.share * limits.step_s, ',.2f')} ({100 * part.share:.1f}%)" if part else ""


def _at_limit(name: str, limits: StepLimits) -> str:
    part = limits.part(name)
    return three_digits(1e3 * part.at_limit_s, ",.2f") if part and part.at_limit_s is not None else ""


def _best(limits: StepLimits) -> str:
    return (
        ""
        if limits.best_s is None
        else f"{three_digits(1e3 * limits.best_s, ',.2f')} ({100 * limits.best_s / limits.step_s:.0f}%)"
    )


def _legend(runs: Sequence[Profiled], found: Sequence[StepLimits]) -> Iterator[str]:
    yield _SHARES
    used = [run.breakdown.calibration for run in runs if run.breakdown.calibration]
    if not used:
        yield "the limits of this machine are unknown: `llmexp task=micro` measures them for later runs"
        return
    yield _AT_LIMIT
    if any(limits.best_s for limits in found):
        yield _BEST_STEP
    for calibration in dict.fromkeys((each.run, each.day, each.doubt) for each in used):
        run, day, doubt = calibration
        yield f"limits: {run}, {day}" + f"; {doubt}" * bool(doubt)
