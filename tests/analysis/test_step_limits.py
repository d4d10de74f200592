"""What bounds a step and what it would be at the limits, worked out by hand on made-up breakdowns."""

from __future__ import annotations

import random
from typing import Any

import pytest

from llmexp.analysis.step_limits import (
    COMMUNICATION,
    COPIES,
    COUNTED,
    HOST,
    OTHER,
    Part,
    StepLimits,
    step_limits,
)
from llmexp.record.breakdown import Breakdown, CollectiveTime, KernelTime, RunBreakdown
from llmexp.record.calibration import Calibration
from llmexp.record.counted import AttentionTime, GemmTime

MS = 1_000_000
LIMITS = {
    "gemm_bf16_flops_per_s": 1e12,
    "attention_flash_forward_flops_per_s": 5e11,
    "host_to_device_pinned_bytes_per_s": 1e9,
    "all_reduce_busbw_bytes_per_s": 2e9,
}
# 4e9 operations in all.
GEMM = GemmTime(operator="aten::mm", calls=2, work_ns=10 * MS, dtype="bf16", batch=1, m=1000, n=1000, k=1000)


def rank(**changes: Any) -> Breakdown:
    """Two steps of 50 ms: of 100 ms 20 multiply, 30 compute else, 25 and 5 are exposed, 20 are idle."""
    fields: dict[str, Any] = {
        "window_ns": 100 * MS,
        "compute_ns": 50 * MS,
        "exposed_communication_ns": 25 * MS,
        "exposed_copy_ns": 5 * MS,
        "idle_ns": 20 * MS,
        "idle_late_ns": 20 * MS,
        "idle_queued_ns": 0,
        "idle_unexplained_ns": 0,
        "communication_ns": 40 * MS,
        "copy_ns": 8 * MS,
        "counted_ns": 20 * MS,
        "counted_flops": GEMM.flops,
        "gemms": [GEMM],
    }
    return Breakdown(
        source="rank0", on_device=True, steps=2, phases=[], modules=[], **({"kernels": []} | fields | changes)
    )


def run(*ranks: Breakdown, limits: dict[str, float] | None = LIMITS, **changes: Any) -> RunBreakdown:
    calibration = Calibration(run="a run", measured_at="2026-11-23T10:00:00", limits=limits) if limits else None
    return RunBreakdown(repeat=0, ranks=list(ranks or [rank()]), processes=4, calibration=calibration, **changes)


def at_limit(found: RunBreakdown, name: str) -> float | None:
    part = step_limits(found, None).part(name)
    return part.at_limit_s if part else None


def test_shares_are_of_the_profiled_step_and_add_up() -> None:
    found = step_limits(run(), measured_step_s=0.04)
    assert {part.name: part.share for part in found.parts} == {
        COUNTED: 0.2,
        OTHER: pytest.approx(0.3),
        COMMUNICATION: 0.25,
        COPIES: 0.05,
        HOST: 0.2,
    }
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    assert found.step_s == 0.04
    assert step_limits(run(), None).step_s == 0.05


def test_ranks_are_averaged() -> None:
    other = rank(compute_ns=70 * MS, idle_ns=0, idle_late_ns=0)
    found = step_limits(run(rank(), other), None)
    assert [found.part(name).share for name in (OTHER, HOST)] == pytest.approx([0.4, 0.1])  # type: ignore[union-attr]


def test_products_at_the_limit_take_their_operations_over_it() -> None:
    # 4e9 operations in two steps at 1e12 a second.
    assert at_limit(run(), COUNTED) == pytest.approx(0.002)


def test_shapes_that_the_breakdown_does_not_keep_are_taken_to_be_like_the_others() -> None:
    assert at_limit(run(rank(counted_flops=2 * GEMM.flops)), COUNTED) == pytest.approx(0.004)


def test_fused_attention_has_a_limit_of_its_own() -> None:
    attention = AttentionTime(
        operator="flash",
        calls=1,
        work_ns=MS,
        dtype="bf16",
        backward=False,
        causal=True,
        batch=1,
        heads=1,
        kv_heads=1,
        queries=1000,
        keys=1000,
        head_dim=1000,
        value_dim=1000,
        pairs=1e6,
    )
    both = rank(attention=[attention], counted_flops=GEMM.flops + attention.flops)
    assert at_limit(run(both), COUNTED) == pytest.approx(0.002 + attention.flops / 5e11 / 2)


def test_a_dtype_whose_limit_was_not_measured_leaves_the_limit_open() -> None:
    fp16 = GEMM.model_copy(update={"dtype": "fp16"})
    assert at_limit(run(rank(gemms=[GEMM, fp16])), COUNTED) is None
    assert step_limits(run(limits=None), None).best_s is None


def test_copies_at_the_limit_are_those_between_host_and_device() -> None:
    kernels = [
        KernelTime(name="Memcpy HtoD (Pinned -> Device)", kind="copy", calls=1, work_ns=MS, copied_bytes=4_000_000),
        KernelTime(name="Memcpy DtoD (Device -> Device)", kind="copy", calls=1, work_ns=MS, copied_bytes=9_000_000),
    ]
    assert at_limit(run(rank(kernels=kernels)), COPIES) == pytest.approx(0.002)


def reduced(moved_bytes: int) -> RunBreakdown:
    time = CollectiveTime(name="ncclDevKernel_AllReduce_Sum_bf16", calls=2, work_ns=MS, pure_ns=MS, waited_ns=0)
    return run(collectives=[time], moved_bytes={"all_reduce": moved_bytes})


def test_collectives_at_the_limit_carry_their_bytes_over_the_bus() -> None:
    # Of four ranks 1.5 times 4 MB go over the links in each step.
    assert at_limit(reduced(8_000_000), COMMUNICATION) == pytest.approx(0.003)
    scattered = CollectiveTime(name="ReduceScatter", calls=2, work_ns=MS, pure_ns=MS, waited_ns=0)
    found = reduced(8_000_000)
    unknown = found.model_copy(update={"collectives": [*found.collectives, scattered]})
    assert at_limit(unknown, COMMUNICATION) is None


def test_the_best_step_computes_all_the_time_and_hides_the_rest_as_far_as_it_can() -> None:
    # 2 ms for products, and 30 % of 50 ms for what else is computed.
    assert step_limits(run(), None).best_s == pytest.approx(0.002 + 0.015)
    assert step_limits(reduced(80_000_000), None).best_s == pytest.approx(0.03)


def test_a_step_is_bound_by_its_largest_part_and_by_what_is_near_it() -> None:
    def bounds(**shares: float) -> list[str]:
        return StepLimits(1.0, tuple(Part(name, share) for name, share in shares.items())).bounds

    assert bounds(a=0.6, b=0.4) == ["a"]
    assert bounds(a=0.2, b=0.36, c=0.44) == ["c", "b"]


def test_one_name_for_two_parts_of_equal_size_is_seldom_wrong() -> None:
    """Of shares with a standard deviation of 4.6 points, the largest that was measured (docs/micro.md)."""
    generator = random.Random(0)

    def names() -> int:
        shares = [0.35 + generator.gauss(0, 0.046) for _ in range(2)]
        parts = (*(Part(str(number), share) for number, share in enumerate(shares)), Part("rest", 1 - sum(shares)))
        return len(StepLimits(1.0, parts).bounds)

    assert sum(names() == 1 for _ in range(2000)) / 2000 < 0.03
