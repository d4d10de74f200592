"""Tables of products and attention: their rates, and what stands beside a peak."""

from __future__ import annotations

import pytest

from llmexp.record.breakdown import Breakdown, RunBreakdown
from llmexp.record.calibration import Calibration
from llmexp.record.counted import AttentionTime, CountedPeaks, GemmTime
from llmexp.report.breakdown.parts import Profiled
from llmexp.report.breakdown.rates import rate_tables
from llmexp.report.section import ReportTable

MS = 1_000_000


def gemm(operator: str = "aten::mm", dtype: str = "bf16", ms: float = 1) -> GemmTime:
    """Return a product of 2 GFLOP and 6 MB in bf16."""
    sizes = {"batch": 1, "m": 1000, "n": 1000, "k": 1000}
    return GemmTime(operator=operator, dtype=dtype, calls=1, work_ns=round(ms * MS), **sizes)


def attention(**more: object) -> AttentionTime:
    """Return a forward of 4 GFLOP in a millisecond."""
    shape = {"batch": 1, "heads": 10, "kv_heads": 5, "queries": 1000, "keys": 1000, "head_dim": 100, "value_dim": 100}
    own = {"operator": "aten::_scaled_dot_product_flash_attention", "dtype": "bf16", "calls": 1, "work_ns": MS}
    return AttentionTime(**own | shape | {"backward": False, "causal": False, "pairs": 1e6} | more)


def run(*counted: GemmTime | AttentionTime, peaks: CountedPeaks | None = None) -> Profiled:
    parts = ("exposed_communication", "exposed_copy", "idle", "idle_late", "idle_queued", "idle_unexplained")
    none = {f"{part}_ns": 0 for part in (*parts, "communication", "copy")}
    rank = Breakdown(
        source="rank0.json.gz",
        on_device=True,
        steps=0,
        window_ns=10 * MS,
        compute_ns=10 * MS,
        phases=[],
        modules=[],
        kernels=[],
        gemms=[each for each in counted if isinstance(each, GemmTime)],
        attention=[each for each in counted if isinstance(each, AttentionTime)],
        counted_ns=sum(each.work_ns for each in counted),
        counted_flops=sum(each.flops for each in counted),
        **none,
    )
    return Profiled("a", RunBreakdown(repeat=0, ranks=[rank], peaks=peaks or CountedPeaks()))


def cells(table: ReportTable) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for column in table.columns:
        found.setdefault(column.header, []).extend(column.cells)
    return found


def test_rates_stand_beside_the_peak_of_their_dtype() -> None:
    peaks = CountedPeaks(flops_per_s={"bf16": 4e12}, bytes_per_s=24e9)
    (table,) = rate_tables(run(gemm(), gemm("aten::addmm", "fp32"), peaks=peaks))
    found = cells(table)
    assert found["operator"] == ["mm", "addmm"]
    assert found["TFLOP/s"] == ["2.00", "2.00"]
    assert found["GB/s"] == ["6.00", "12.0"]
    assert found["% peak"] == ["50.0", "", "25.0", "50.0"]  # no peak is known for fp32
    assert "the trace tells the shapes of 20.0% of the computing time, at 2.00 TFLOP/s" in table.legend[0]


def test_rates_stand_beside_the_limits_that_were_measured() -> None:
    limits = {"gemm_bf16_flops_per_s": 8e12, "memory_bytes_per_s": 12e9, "attention_flash_forward_flops_per_s": 16e12}
    calibration = Calibration(run="micro", measured_at="2026-11-23", limits=limits)
    found = run(gemm(), gemm(dtype="fp32"), attention())
    products, fused = rate_tables(
        Profiled("a", found.breakdown.model_copy(update={"calibration": calibration}), found.measured_step_s)
    )
    assert cells(products)["% limit"] == ["25.0", "", "50.0", "100.0"]
    assert cells(fused)["% limit"][0] == "25.0"
    assert "% limit: of the highest rate that task=micro reached on this machine" in products.legend


def test_without_peaks_there_are_rates_alone_and_without_shapes_nothing() -> None:
    (table,) = rate_tables(run(gemm(dtype="")))
    assert [column.header for column in table.columns][-2:] == ["ms", "TFLOP/s"]
    assert cells(table)["dtype"] == ["?"]
    assert not [*rate_tables(run())]


def test_what_is_above_a_peak_is_marked_and_said() -> None:
    peaks = CountedPeaks(flops_per_s={"bf16": 1e12}, bytes_per_s=1e9)
    (table,) = rate_tables(run(gemm(), peaks=peaks))
    assert cells(table)["% peak"] == ["200.0!", "600.0!"]
    assert any("above the peak" in line for line in table.legend)
    assert any("in a cache" in line for line in table.legend)


def test_attention_has_its_shape_and_its_convention() -> None:
    packed = attention(queries=12.5, keys=12.5, equal_lengths=True, causal=True)
    _, table = rate_tables(run(gemm(), attention(), packed))
    found = cells(table)
    assert found["operator"] == ["flash_attention"] * 2
    assert found["heads"] == ["10 on 5"] * 2
    assert found["queries"] == ["1,000", "~12.5"]
    assert found["causal"] == ["no", "yes"]
    assert found["TFLOP/s"][0] == "4.00"
    assert any("half of the pairs" in line for line in table.legend)
    assert any("mean of packed sequences" in line for line in table.legend)


def test_work_without_time_has_no_rate() -> None:
    (table,) = rate_tables(run(gemm(ms=0), gemm()))
    assert cells(table)["TFLOP/s"] == ["", "2.00"]


@pytest.mark.parametrize(("dtype", "size"), [("bf16", 2), ("fp32", 4), ("fp8", 1)])
def test_bytes_are_those_of_inputs_and_result(dtype: str, size: int) -> None:
    assert gemm(dtype=dtype).least_bytes == 3e6 * size
    assert attention(dtype=dtype).least_bytes == 1000 * (10 + 5) * 200 * size
    assert attention(dtype=dtype, backward=True).least_bytes == 2 * 1000 * (10 + 5) * 200 * size
