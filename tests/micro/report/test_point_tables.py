"""Tables of microbenchmarks: units, marks, what could not be measured, and the paper's cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planning import make_plan

from llmexp.micro.points import DURING
from llmexp.micro.report.section import MicroSection, limits_table
from llmexp.micro.report.tables import percent_of_peak, point_tables
from llmexp.micro.report.units import in_bytes, in_seconds
from llmexp.micro.task import MICRO
from llmexp.paper.reference import PAPER
from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, ResultPoint, RunResult, RunStatus
from llmexp.report.columns import ReportTable
from llmexp.report.row import Row

GEMM = {"family": "gemm", "kind": "gemm", "dtype": "bf16", "m": 666, "n": 11008, "k": 4096}


def row(
    *points: ResultPoint, hardware: str = "a800", sweep: str = "main", cache_bytes: int | None = None, **metrics: float
) -> Row:
    plan: Any = make_plan("task=micro", "micro=gemm", f"hardware={hardware}", f"sweep.name={sweep}")
    result = RunResult(
        id="0",
        stack="0",
        status=RunStatus.SUCCESS,
        task="micro",
        engine="micro",
        hardware=hardware,
        sweep="main",
        processes=1,
        devices=1,
        command="",
        points=list(points),
        what_ran={"cache_bytes": {"device": cache_bytes, "host": cache_bytes}},
        metrics={name: Metric(mean=value) for name, value in metrics.items()},
    )
    return Row(RunFolder(Path("nowhere")), plan, RunStatus.SUCCESS, "", result)


def tables(shown: Row) -> list[ReportTable]:
    return list(point_tables(shown, MicroSection((shown,)).beside))


def point(params: dict[str, Any], std: float | None = None, problem: str = "", **metrics: float) -> ResultPoint:
    found = {name: Metric(mean=value, std_between_repeats=std, n=1) for name, value in metrics.items()}
    return ResultPoint(params=params, metrics=found, problem=problem)


def cells(table: ReportTable) -> dict[str, tuple[str, ...]]:
    return {column.header.replace("\u00a0", " "): column.cells for column in table.columns}


def test_a_point_has_its_time_spread_rate_and_share_of_the_peak() -> None:
    times = {"time_s": 0.00029, "time_p5_s": 0.00028, "time_p95_s": 0.0003, "samples": 100}
    (table,) = tables(row(point(GEMM, flops_per_s=156e12, **times)))
    found = cells(table)
    assert table.title == "matrix products, [m, k] by [k, n]"
    assert (found["m"], found["median time"], found["p5 to p95"]) == (("666",), ("290 µs",), ("280 µs to 300 µs",))
    assert (found["TFLOP/s"], found["% of peak"]) == (("156",), ("50.0",))


def test_table_xii_stands_beside_its_products_and_is_compared_on_its_own_hardware_alone() -> None:
    ours = point(GEMM, time_s=0.000578, samples=320, flops_per_s=1e14)
    (on_a800,) = tables(row(ours))
    found = cells(on_a800)
    assert (found["paper, A800"], found["% of peak there"], found["time over paper"]) == (
        ("289 µs",),
        ("66.6",),
        ("2.00",),
    )
    assert any("M=666 is 2 x 333, not 2 x 350" in line for line in on_a800.legend)
    (elsewhere,) = tables(row(ours, hardware="cpu"))
    assert "paper, A800" in cells(elsewhere)
    assert "time over paper" not in cells(elsewhere)


def test_what_was_not_measured_says_why_and_where_a_run_ended() -> None:
    params = {"family": "copies", "kind": "device_to_device", "bytes": 65536}
    (table,) = tables(row(point(params, problem="no memory"), point(params, problem=DURING)))
    assert cells(table)["median time"] == ("-", "ended here")
    assert list(table.legend) == ["not measured: no memory", f"not measured: {DURING}"]


def test_few_samples_are_marked_and_repeats_have_a_deviation() -> None:
    few = {"time_s": 1.0, "time_p5_s": 0.9, "time_p95_s": 1.1, "samples": 5}
    (table,) = tables(row(point(GEMM, std=0.25, **few)))
    found = cells(table)
    assert (found["median time"], found["p5 to p95"]) == (("1.00 s ± 250 ms",), ("900 ms to 1.10 s *",))
    assert table.legend[0] == "*: fewer than 100 samples fit into measure.point_limit_s"
    assert "±: standard deviation between repeats, in fresh processes" in table.legend


def test_limits_of_several_runs_stand_side_by_side_in_units_that_people_read() -> None:
    first, second = row(gemm_bf16_flops_per_s=2.5e14), row(memory_bytes_per_s=2e10, gemm_bf16_flops_per_s=4e11)
    table = limits_table([first, second], MICRO.metrics, lambda each: "a" if each is first else "b")
    assert table
    assert cells(table) == {
        "limit": ("matrix products in bf16", "STREAM's triad in the device's memory"),
        "a": ("250 TFLOP/s", ""),
        "b": ("400 GFLOP/s", "20.0 GB/s"),
    }
    assert limits_table([row()], MICRO.metrics, str) is None


def copies(size: int, rate: float, data_bytes: int) -> ResultPoint:
    params = {"family": "copies", "kind": "device_to_device", "bytes": size}
    return point(params, bytes_per_s=rate, data_bytes=data_bytes)


def test_a_limit_of_memory_says_which_size_it_is_from_and_what_the_cache_did_is_marked() -> None:
    small, large = copies(2**16, 5.52e9, 2**23), copies(2**26, 0.93e9, 2**29)
    measured = row(small, large, cache_bytes=2**25, device_to_device_bytes_per_s=0.93e9)
    table = limits_table([measured], MICRO.metrics, lambda _: "here")
    assert table
    assert cells(table) == {"limit": ("copies on the device",), "here": ("0.930 GB/s at 64 MiB",)}
    (points,) = tables(measured)
    assert cells(points)["GB/s"] == ("5.52 †", "0.930")
    assert list(points.legend) == ["†: the cache's rate; the data are less than 2 times its 32 MiB"]


@pytest.mark.parametrize(
    ("cache_bytes", "said", "why"),
    [
        (2**25, "in the cache", "in the cache: no point's data are 2 times as large as the cache, 32 MiB, so no"),
        (None, "cache unknown", "cache unknown: the system does not report its size"),
    ],
)
def test_where_no_data_are_beyond_the_cache_that_is_said_in_place_of_a_number(
    cache_bytes: int | None, said: str, why: str
) -> None:
    measured = row(copies(2**16, 5.52e9, 2**23), cache_bytes=cache_bytes)
    table = limits_table([measured], MICRO.metrics, lambda _: "here")
    assert table
    assert cells(table)["here"] == (said,)
    (line,) = table.legend
    assert line.startswith(why)


def test_the_caches_rate_is_no_share_of_the_memorys_peak() -> None:
    params = {"family": "memory", "kind": "triad", "bytes": 2**16}
    small, large = (point(params, bytes_per_s=1.0195e12, data_bytes=size) for size in (2**20, 2**26))
    assert percent_of_peak(small, row(cache_bytes=2**25)) is None
    assert percent_of_peak(large, row(cache_bytes=2**25)) == pytest.approx(50)


@pytest.mark.parametrize(
    ("params", "rates", "percent"),
    [
        (GEMM, {"flops_per_s": 31.2e12}, 10),
        (GEMM | {"dtype": "fp8"}, {"flops_per_s": 1e12}, None),
        ({"family": "memory", "kind": "triad"}, {"bytes_per_s": 1.0195e12}, 50),
        ({"family": "optimizer", "kind": "adamw_on_host"}, {"bytes_per_s": 1e10}, None),
        ({"family": "copies", "kind": "device_to_device"}, {"bytes_per_s": 1e10}, None),
    ],
)
def test_a_peak_is_that_of_the_dtype_or_of_the_devices_memory(
    params: dict[str, Any], rates: dict[str, float], percent: float | None
) -> None:
    found = percent_of_peak(point(params, **rates), row())
    assert found == (None if percent is None else pytest.approx(percent))


def test_sizes_and_times_are_in_the_unit_that_keeps_them_short() -> None:
    assert [in_bytes(size) for size in (1, 1023, 1024, 65536, 3 * 2**20, 2**30)] == [
        *("1 B", "1,023 B", "1 KiB", "64 KiB", "3 MiB", "1 GiB")
    ]
    assert [in_seconds(seconds) for seconds in (2.5, 0.0125, 3.14e-6)] == ["2.50 s", "12.5 ms", "3.14 µs"]


def test_points_of_the_papers_table_and_figures_are_views_of_it() -> None:
    ours = point(GEMM, time_s=0.000578, samples=320, flops_per_s=1e14)
    (view,) = PAPER.beside(MicroSection((row(ours),))).views()
    assert view.name == "table12"
    assert view.table.title.startswith("table XII of the paper, the first product of the MLP: ")
    other = point(GEMM | {"m": 512}, time_s=0.0005, samples=320, flops_per_s=1e14)
    assert PAPER.beside(MicroSection((row(other),))).views() == []
    (figure,) = PAPER.beside(MicroSection((row(other, sweep="paper_fig11"),))).views()
    assert (figure.name, figure.table.legend[-1]) == ("fig11", "the paper draws these points and prints none of them")


def test_the_section_says_how_many_points_were_measured() -> None:
    section = MicroSection((row(point(GEMM, time_s=1.0, samples=100), point(GEMM, problem="no memory")),))
    (measured,) = (column for column in section.columns if column.header == "points measured")
    assert measured.cells == ("1 of 2",)
    assert section.title == "microbenchmarks on a800, 8 ranks, model tiny"
