"""What a link carries, and which collective a name means."""

from __future__ import annotations

import pytest

from llmexp.record.collectives import bus_factor, collective_kind


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    assert bus_factor("all_reduce", 8) == 1.75
    assert {bus_factor(kind, 8) for kind in ("all_gather", "reduce_scatter", "all_to_all")} == {0.875}
    assert {bus_factor(kind, 8) for kind in ("reduce", "broadcast", "send_recv")} == {1.0}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_SendRecv", "send_recv"),
        ("ncclDevKernel_Reduce_Sum_f32", "reduce"),
        ("gloo:all_gather", "all_gather"),
        ("gloo:all_to_all", "all_to_all"),
        ("aten::mm", None),
    ],
)
def test_a_collective_is_known_by_the_names_that_nccl_and_gloo_give_it(name: str, kind: str | None) -> None:
    assert collective_kind(name) == kind
