"""What bounds a step, as a person reads it."""

from __future__ import annotations

from typing import Any

from llmexp.record.breakdown import Breakdown, RunBreakdown
from llmexp.record.calibration import Calibration
from llmexp.record.counted import GemmTime
from llmexp.report.breakdown.limits import limits_table
from llmexp.report.breakdown.parts import Profiled

MS = 1_000_000


def profiled(name: str, calibration: Calibration | None = None, **changes: Any) -> Profiled:
    fields: dict[str, Any] = {
        "compute_ns": 60 * MS,
        "exposed_communication_ns": 0,
        "idle_ns": 40 * MS,
        "idle_late_ns": 40 * MS,
    } | changes
    gemm = GemmTime(operator="mm", calls=1, work_ns=MS, dtype="fp32", batch=1, m=1000, n=1000, k=1000)
    rank = Breakdown(
        source="rank0",
        on_device=False,
        steps=1,
        window_ns=100 * MS,
        exposed_copy_ns=0,
        idle_queued_ns=0,
        idle_unexplained_ns=0,
        communication_ns=0,
        copy_ns=0,
        phases=[],
        modules=[],
        kernels=[],
        gemms=[gemm],
        counted_ns=50 * MS,
        counted_flops=gemm.flops,
        **fields,
    )
    return Profiled(name, RunBreakdown(repeat=0, ranks=[rank], calibration=calibration), 0.05)


def table(*runs: Profiled) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    table = limits_table(runs)
    names, *cells = (column.cells for column in table.columns)
    return dict(zip(names, zip(*cells, strict=True), strict=True)), list(table.legend)


def test_each_part_has_its_time_of_the_measured_step_and_its_share() -> None:
    lines, legend = table(profiled("Naive"))
    assert lines == {
        "products and attention": ("25.0 (50.0%)",),
        "other computation": ("5.00 (10.0%)",),
        "the host came too late": ("20.0 (40.0%)",),
        "bound by": ("products and attention, the host came too late",),
    }
    assert legend[-1] == "the limits of this machine are unknown: `llmexp task=micro` measures them for later runs"


def test_with_limits_there_are_times_at_the_limit_the_best_step_and_where_they_are_from() -> None:
    limits = Calibration(
        run="outputs/main/micro",
        measured_at="2026-11-23T10:00:00",
        limits={"gemm_fp32_flops_per_s": 1e12},
        doubt="contention: a lot",
    )
    lines, legend = table(profiled("Naive", limits), profiled("Z2", limits, exposed_communication_ns=10 * MS))
    assert lines["\u00a0\u00a0at the limit"] == ("2.00", "2.00")
    assert lines["communication"] == ("", "5.00 (10.0%)")
    assert lines["best step"] == ("7.00 (14%)", "7.00 (14%)")
    assert legend[-1] == "limits: outputs/main/micro, 2026-11-23; contention: a lot"
