"""What the device did all in all, and why it was idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import fmean

from llmexp.record.breakdown import Breakdown
from llmexp.report.breakdown.parts import COMMUNICATION, COPIES, Profiled, share_cell, step_ms
from llmexp.report.columns import Column, ReportTable

_IDLE_ON_HOST = "idle: between operators"


def causes_table(run: Profiled) -> ReportTable:
    """Return what the device did, and why it was idle."""
    ranks = run.breakdown.ranks
    names: dict[str, Callable[[Breakdown], int]] = {
        "computing": lambda rank: rank.compute_ns,
        COMMUNICATION: lambda rank: rank.exposed_communication_ns,
        COPIES: lambda rank: rank.exposed_copy_ns,
        _IDLE_ON_HOST if not ranks[0].on_device else "idle: the host came too late": lambda rank: rank.idle_late_ns,
        "idle: work was queued already": lambda rank: rank.idle_queued_ns,
        "idle: the trace does not show why": lambda rank: rank.idle_unexplained_ns,
        "communication in all": lambda rank: rank.communication_ns,
        "copies in all": lambda rank: rank.copy_ns,
    }
    shown = {name: fmean(of(rank) / rank.counted_steps / 1e6 for rank in ranks) for name, of in names.items()}
    shown = {name: value for name, value in shown.items() if value}
    whole_ms = step_ms(run.breakdown)
    columns = [
        Column("what", tuple(shown), left=True),
        Column("ms/step" if ranks[0].steps else "ms", tuple(share_cell(value, whole_ms) for value in shown.values())),
    ]
    return ReportTable(f"{run.name}: what the {'device' if ranks[0].on_device else 'processor'} did", columns, [])


def kinds_table(run: Profiled) -> ReportTable:
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
    return ReportTable("by kind of work, in percent of the busy time", columns, [])
