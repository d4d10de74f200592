"""The costliest kernels or operators, and the collectives."""

from __future__ import annotations

from llmexp.record.breakdown import KernelTime
from llmexp.record.digits import three_digits
from llmexp.report.breakdown.parts import Profiled
from llmexp.report.columns import Column, ReportTable

MOST_KERNELS = 15
LONGEST_KERNEL = 60


def kernels_table(run: Profiled) -> ReportTable:
    """Return the costliest kernels or operators of the first rank."""
    rank = run.breakdown.ranks[0]
    shown = rank.kernels[:MOST_KERNELS]
    columns = [
        Column("kernel" if rank.on_device else "operator", tuple(cut(each.name) for each in shown), left=True),
        Column("kind", tuple(each.kind for each in shown), left=True),
        Column("calls", tuple(f"{each.calls:,}" for each in shown)),
        Column("ms", tuple(three_digits(each.work_ns / 1e6, ",.3f") for each in shown)),
        Column("us/call", tuple(three_digits(each.work_ns / each.calls / 1e3, ",.1f") for each in shown)),
        Column("GB/s", tuple(map(_bandwidth, shown))),
    ]
    told = [column for column in columns if any(column.cells)]
    return ReportTable(f"costliest {'kernels' if rank.on_device else 'operators'}, {rank.source}", told, [])


def _bandwidth(kernel: KernelTime) -> str:
    return three_digits(kernel.copied_bytes / max(1, kernel.work_ns), ",.2f") if kernel.copied_bytes else ""


def collectives_table(run: Profiled) -> ReportTable | None:
    """Return the collectives, with the waiting for late ranks apart; None where there were none."""
    shown = run.breakdown.collectives
    if not shown:
        return None
    columns = [
        Column("collective", tuple(cut(each.name) for each in shown), left=True),
        Column("calls", tuple(f"{each.calls:,}" for each in shown)),
        Column("ms", tuple(three_digits(each.work_ns / 1e6, ",.2f") for each in shown)),
        Column("waiting", tuple(_ms(each.waited_ns) for each in shown)),
        Column("pure", tuple(_ms(each.pure_ns) for each in shown)),
    ]
    legend = "waiting: ms until the last rank came, pure: ms from then on; ? where the ranks' calls do not match"
    return ReportTable("collectives, as a mean over ranks", columns, [legend])


def _ms(time_ns: int | None) -> str:
    return "?" if time_ns is None else three_digits(time_ns / 1e6, ",.2f")


def cut(name: str) -> str:
    """Return a name as long as a cell may be."""
    return name if len(name) <= LONGEST_KERNEL else f"{name[: LONGEST_KERNEL - 1]}…"
