"""Charts of microbenchmarks: a line over three sizes or more, with the intervals of its repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planning import make_plan

from llmexp.micro.report.section import MicroSection
from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, ResultPoint, RunResult, RunStatus, Stability
from llmexp.report.row import Row

UNSTABLE = Stability(verdict="unstable", reasons=["noise: wide"])


def copies(*sizes: int) -> MicroSection:
    """One run that copied so many bytes at a time, each at 1 GB/s and twice."""
    rate, time = (Metric(mean=mean, std_between_repeats=mean / 100, n=2) for mean in (1e9, 1e-3))
    points = [
        ResultPoint(
            params={"family": "copies", "kind": "host_to_device", "bytes": size},
            metrics={"bytes_per_s": rate, "time_s": time},
        )
        for size in sizes
    ]
    known = {"id": "0", "stack": "0", "status": RunStatus.SUCCESS, "task": "micro", "engine": "micro", "command": ""}
    known |= {"hardware": "cpu", "sweep": "main", "processes": 1, "devices": 1, "stability": UNSTABLE}
    plan: Any = make_plan("task=micro", "micro=copies", "hardware=cpu")
    return MicroSection(
        (Row(RunFolder(Path("nowhere")), plan, RunStatus.SUCCESS, "", RunResult(points=points, **known)),)
    )


def test_a_chart_for_each_quantity_with_logarithmic_axes_intervals_and_the_sign() -> None:
    speed, time = copies(1024, 4096, 65536).charts
    assert (speed.title, speed.x_label, speed.log_x, speed.log_y) == ("Copies, GB/s", "size, bytes", True, True)
    assert speed.name != time.name
    (trace,) = speed.traces
    assert trace.name == "host_to_device !"
    assert (list(trace.x), list(trace.y)) == ([1024.0, 4096.0, 65536.0], [1.0, 1.0, 1.0])
    low, high = trace.intervals[0]
    assert low < 1 < high


def test_two_sizes_make_no_curve() -> None:
    assert list(copies(1024, 4096).charts) == []
