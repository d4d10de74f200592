"""Breakdowns of traces that are small enough to work out by hand; times in the comments are microseconds."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from llmexp.errors import TraceError
from llmexp.record.breakdown import Breakdown, RunBreakdown
from llmexp.record.ranges import CORE, MODULE, PHASE_END, STEP
from llmexp.traces.breakdown import break_down, read_profile

GEMM, ADD = "sm90_xmma_gemm_bf16", "vectorized_elementwise_kernel"
NCCL, TO_HOST = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "Memcpy DtoH (Device -> Pageable)"


def sums_are_whole(found: Breakdown) -> None:
    busy_ns = found.compute_ns + found.exposed_communication_ns + found.exposed_copy_ns
    assert busy_ns + found.idle_ns == found.window_ns
    assert found.idle_late_ns + found.idle_queued_ns + found.idle_unexplained_ns == found.idle_ns
    assert sum(phase.time_ns for phase in found.phases) == found.window_ns
    assert sum(module.exclusive_ns for module in found.modules) == found.compute_ns
    assert sum(found.kinds.values()) == busy_ns


def modules_us(found: Breakdown) -> dict[tuple[str, str, bool], float]:
    return {(row.phase, "/".join(row.path), row.recomputed): row.exclusive_ns / 1e3 for row in found.modules}


def test_a_gpu_without_ranges(made) -> None:
    made.kernel(GEMM, 10, 20, launched=2)
    made.kernel(NCCL, 15, 30, launched=3, stream=20)  # 5 are hidden
    made.kernel(TO_HOST, 28, 34, launched=4, stream=21)  # 2 under communication
    made.kernel(ADD, 40, 41, launched=38)  # idle 34 to 40: the host comes at 38
    made.kernel(ADD, 43, 44, launched=39)  # idle 41 to 43: it was queued
    made.kernel(ADD, 50, 51)  # idle 44 to 50: nobody knows
    found = break_down(read_profile(made.file()))
    sums_are_whole(found)
    assert (found.window_ns, found.compute_ns) == (41_000, 13_000)
    assert (found.exposed_communication_ns, found.communication_ns) == (10_000, 15_000)
    assert (found.exposed_copy_ns, found.copy_ns) == (4_000, 6_000)
    assert (found.idle_late_ns, found.idle_queued_ns, found.idle_unexplained_ns) == (4_000, 4_000, 6_000)
    assert found.kinds == {"GEMM": 10_000, "communication": 10_000, "copy": 4_000, "elementwise": 3_000}
    assert [(kernel.name, kernel.calls, kernel.work_ns) for kernel in found.kernels] == [
        (NCCL, 1, 15_000),
        (GEMM, 1, 10_000),
        (TO_HOST, 1, 6_000),
        (ADD, 3, 3_000),
    ]


def test_copies_on_the_device_are_no_exposed_copies(made) -> None:
    made.kernel(TO_HOST, 10, 14, launched=1, stream=21)
    made.kernel("Memcpy DtoD (Device -> Device)", 13, 20, launched=2)  # hides 1 of the copy to the host
    made.kernel(NCCL, 18, 24, launched=3, stream=20)  # 2 are hidden
    made.kernel("Memcpy PtoP (Device -> Device)", 24, 26, launched=4)
    found = break_down(read_profile(made.file()))
    sums_are_whole(found)
    assert (found.exposed_copy_ns, found.copy_ns) == (5_000, 12_000)
    assert (found.compute_ns, found.exposed_communication_ns) == (7_000, 4_000)
    assert found.kinds == {"copy": 12_000, "communication": 4_000}


def step(made, begin: float, forward: float, backward: float, optimizer: float) -> None:
    made.range(STEP, begin, optimizer + 1)
    for phase, at in (("forward", forward), ("backward", backward), ("optimizer", optimizer)):
        made.range(PHASE_END + phase, at, at)


def test_kernels_belong_to_the_module_that_launched_them_and_gradients_to_that_of_their_forward(made) -> None:
    step(made, 0, 30, 70, 90)
    made.range(MODULE + "MLP", 5, 25)
    made.range(MODULE + "Up", 10, 20)
    made.operator("aten::mm", 11, 19)
    made.kernel(GEMM, 100, 110, launched=12)
    made.kernel(ADD, 110, 112, launched=22)
    # Backward runs on autograd's own thread, where no range is open.
    made.operator("autograd::engine::evaluate_function: MmBackward0", 40, 60, thread=2)
    made.operator("MmBackward0", 41, 59, thread=2)
    made.link((1, 11), (2, 40))
    made.kernel(GEMM, 120, 140, launched=45, thread=2)
    made.kernel(NCCL, 130, 150, launched=50, thread=2, stream=9)
    made.kernel("multi_tensor_apply_kernel adam", 150, 155, launched=80)
    made.kernel(ADD, 200, 300, launched=95)  # after the step
    found = break_down(read_profile(made.file()))
    sums_are_whole(found)
    assert modules_us(found) == {
        ("forward", "MLP/Up", False): 10,
        ("forward", "MLP", False): 2,
        ("backward", "MLP/Up", False): 20,
        ("optimizer", "", False): 5,
    }
    backward = next(phase for phase in found.phases if phase.phase == "backward")
    assert (backward.time_ns, backward.communication_ns, backward.idle_ns) == (38_000, 10_000, 8_000)
    assert (found.steps, backward.gemm_ns) == (1, 20_000)
    # Forward multiplies in 10 of 12 and what is idle before backward's first kernel, backward in 20 of 38.
    figures = RunBreakdown(repeat=0, ranks=[found, found]).figures
    assert figures["gemm_share_of_backward"] == pytest.approx(20 / 38)
    assert figures["gemm_share_of_forward"] == pytest.approx(10 / 12)
    assert "counted_tflops_per_s" not in figures  # no operator has shapes


def test_the_rate_of_a_run_is_that_of_what_is_counted_on_all_ranks(made, another) -> None:
    ranks = []
    for each, took_us in ((made, 10), (another(), 30)):
        each.operator("aten::mm", 0, 5, **{"Input Dims": [[100, 100], [100, 100]]})
        each.kernel(GEMM, 10, 10 + took_us, launched=1)
        each.kernel(ADD, 100, 110, launched=6)
        ranks.append(break_down(read_profile(each.file())))
    figures = RunBreakdown(repeat=0, ranks=ranks).figures
    assert figures["counted_tflops_per_s"] == pytest.approx(2 * 2e6 / 40e-6 / 1e12)
    assert figures["counted_share_of_compute"] == pytest.approx((10 / 20 + 30 / 40) / 2)


def test_a_forward_that_runs_again_in_backward_is_recomputed_and_lies_where_it_did(made) -> None:
    step(made, 0, 30, 90, 95)
    made.range(MODULE + "Decoder layer", 2, 28)
    made.range(MODULE + "Up", 10, 20)
    made.operator("aten::mm", 11, 19)
    made.kernel(GEMM, 100, 110, launched=12)
    made.operator("autograd::engine::evaluate_function: MmBackward0", 40, 80, thread=2)
    made.link((1, 11), (2, 40))
    made.range(MODULE + "Up", 45, 55, thread=2)  # the layer's own range is not opened by a checkpoint around it
    made.kernel(GEMM, 120, 130, launched=46, thread=2)
    made.kernel(GEMM, 130, 145, launched=60, thread=2)
    found = break_down(read_profile(made.file()))
    sums_are_whole(found)
    assert modules_us(found) == {
        ("forward", "Decoder layer/Up", False): 10,
        ("backward", "Decoder layer/Up", True): 10,
        ("backward", "Decoder layer/Up", False): 15,
    }


def test_core_attention_is_divided_by_its_softmax(made) -> None:
    step(made, 0, 50, 60, 70)
    made.range(MODULE + "Attention", 0, 45)
    made.range(MODULE + CORE, 5, 40)
    for at, kernel in ((6, GEMM), (16, "softmax_warp_forward"), (26, GEMM), (42, ADD)):
        made.kernel(kernel, 100 + at, 104 + at, launched=at)
    made.operator("aten::softmax", 15, 20)
    made.operator("aten::_softmax", 16, 19)
    made.range(MODULE + CORE, 46, 49)  # a fused one
    made.kernel("flash_fwd_kernel", 150, 153, launched=47)
    found = break_down(read_profile(made.file()))
    assert modules_us(found) == {
        ("forward", f"Attention/{CORE}/Bmm0", False): 4,
        ("forward", f"Attention/{CORE}/Softmax", False): 4,
        ("forward", f"Attention/{CORE}/Bmm1", False): 4,
        ("forward", "Attention", False): 4,
        ("forward", CORE, False): 3,
    }


def test_on_a_cpu_an_operator_has_its_own_time_and_waiting_inside_of_one_hides_no_collective(made) -> None:
    step(made, 0, 20, 60, 80)
    made.range(MODULE + "Up", 2, 12)
    made.operator("aten::linear", 3, 11)
    made.operator("aten::mm", 4, 10)
    made.operator("ReduceBackward", 30, 50)
    made.operator("c10d::allreduce_", 31, 32)
    made.range("gloo:all_reduce", 32, 45, thread=5)
    made.operator("aten::add", 40, 42)
    found = break_down(read_profile(made.file()))
    sums_are_whole(found)
    assert not found.on_device
    assert found.window_ns == 81_000
    # Forward: linear's own 2 and mm's 6. Backward: 2 of add hide the collective, and the function's own time does not.
    assert modules_us(found)[("forward", "Up", False)] == 8
    assert (found.communication_ns, found.exposed_communication_ns) == (14_000, 12_000)
    assert found.compute_ns == 8_000 + 2_000 + 1_000 + 5_000
    assert found.idle_ns == 81_000 - 8_000 - 20_000


@pytest.mark.parametrize("seed", range(10))
def test_sums_are_whole_whatever_overlaps(made, seed: int) -> None:
    rng = random.Random(seed)
    for begin in (0, 100):
        step(made, begin, begin + 30, begin + 70, begin + 90)
    for _ in range(60):
        begin = rng.uniform(0, 200)
        name = rng.choice((GEMM, ADD, NCCL, TO_HOST))
        launched = None if rng.random() < 0.1 else rng.uniform(0, 200)
        made.kernel(name, round(begin, 3), round(begin + rng.uniform(0, 9), 3), launched, rng.choice((7, 8, 9)))
    sums_are_whole(break_down(read_profile(made.file())))


def test_times_by_kernel_are_those_of_its_calls(made) -> None:
    rng, total = random.Random(3), defaultdict(int)
    for at in range(100):
        name, length_ns = rng.choice((GEMM, ADD)), rng.randrange(1, 900)
        made.kernel(name, at, round(at + length_ns / 1000, 3), launched=at)
        total[name] += length_ns
    assert {kernel.name: kernel.work_ns for kernel in break_down(read_profile(made.file())).kernels} == total


def test_a_trace_without_work_in_its_steps_is_one_clear_error(made) -> None:
    step(made, 0, 30, 60, 90)
    made.kernel(ADD, 200, 201, launched=150)
    with pytest.raises(TraceError, match="no work of a device or of operators in its steps"):
        break_down(read_profile(made.file()))


def test_products_have_the_operations_of_their_shapes(made) -> None:
    for at in (0, 100):
        made.operator("aten::linear", at, at + 50, **{"Input Dims": [[2, 3, 5], [7, 5], []]})
        made.operator("aten::addmm", at + 1, at + 49, **{"Input Dims": [[7], [6, 5], [5, 7], [], []]})
        made.kernel(GEMM, at + 200, at + 210, launched=at + 10)
        made.kernel("splitKreduce_kernel", at + 210, at + 212, launched=at + 12)
        made.kernel(ADD, at + 220, at + 230, launched=at + 20)
    made.operator("aten::bmm", 300, 310, **{"Input Dims": [[4, 2, 3], [4, 3, 6]]})
    made.kernel(GEMM, 400, 401, launched=305)
    made.operator("aten::mm", 320, 330)  # without shapes
    made.kernel(GEMM, 410, 420, launched=325)
    addmm, bmm = break_down(read_profile(made.file())).gemms
    assert (addmm.operator, addmm.batch, addmm.m, addmm.n, addmm.k) == ("aten::addmm", 1, 6, 7, 5)
    assert (addmm.calls, addmm.work_ns, addmm.flops) == (2, 24_000, 2 * 6 * 7 * 5 * 2)
    assert (bmm.batch, bmm.m, bmm.n, bmm.k, bmm.flops) == (4, 2, 6, 3, 2 * 4 * 2 * 6 * 3)


def multiplied(made, name: str, *shapes: list[int], kernel: str = GEMM, kind: str = "c10::BFloat16") -> Breakdown:
    made.operator(name, 0, 10, **{"Input Dims": shapes, "Input type": [kind] * len(shapes)})
    made.kernel(kernel, 100, 101, launched=5)
    return break_down(read_profile(made.file()))


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("aten::linear", ([2, 3, 5], [7, 5]), 2 * 6 * 7 * 5),
        ("aten::baddbmm", ([1], [4, 2, 3], [4, 3, 6]), 2 * 4 * 2 * 6 * 3),
        ("aten::_grouped_mm", ([12, 5], [4, 5, 7]), 2 * 12 * 7 * 5),  # 4 groups of the 12 rows
        ("aten::_grouped_mm", ([5, 12], [12, 7]), 2 * 5 * 7 * 12),
        ("aten::_grouped_mm", ([4, 3, 5], [4, 5, 7]), 2 * 4 * 3 * 7 * 5),
    ],
)
def test_each_product_has_the_operations_that_its_kernels_do(made, name, shapes, flops: int) -> None:
    found = multiplied(made, name, *shapes)
    assert (found.counted_flops, found.counted_ns) == (flops, 1000)
    assert found.gemms[0].dtype == "bf16"


@pytest.mark.parametrize(
    ("kernel", "kind", "dtype"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32", "float", "fp32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32", "float", "tf32"),
        ("ampere_fp16_s16816gemm_fp16", "c10::Half", "fp16"),
        (GEMM, "c10::Float8_e4m3fn", "fp8"),
        (GEMM, "a dtype of tomorrow", ""),
    ],
)
def test_a_product_has_the_dtype_that_it_ran_in(made, kernel: str, kind: str, dtype: str) -> None:
    (gemm,) = multiplied(made, "aten::mm", [2, 3], [3, 4], kernel=kernel, kind=kind).gemms
    assert gemm.dtype == dtype
    assert (gemm.least_bytes is None) == (not dtype)


def test_on_a_cpu_an_operator_that_calls_another_product_counts_no_operations_twice(made) -> None:
    made.operator("aten::linear", 0, 20, **{"Input Dims": [[6, 5], [7, 5]]})
    made.operator("aten::mm", 5, 15, **{"Input Dims": [[6, 5], [5, 7]]})
    found = break_down(read_profile(made.file()))
    assert [gemm.operator for gemm in found.gemms] == ["aten::mm"]
    assert (found.counted_flops, found.counted_ns, found.compute_ns) == (2 * 6 * 7 * 5, 10_000, 20_000)


def test_a_gradient_whose_forward_was_cut_off_is_outside_modules(made) -> None:
    step(made, 0, 30, 70, 90)
    made.operator("MmBackward0", 40, 60)
    made.link((1, 11), (1, 40))
    made.events = [event for event in made.events if event["ph"] != "s"]
    made.kernel(GEMM, 100, 110, launched=45)
    assert modules_us(break_down(read_profile(made.file()))) == {("backward", "", False): 10}


def test_copies_have_their_bytes(made) -> None:
    made.kernel(TO_HOST, 0, 10)
    made.events[-1]["args"]["bytes"] = 5 * 2**30
    assert break_down(read_profile(made.file())).kernels[0].copied_bytes == 5 * 2**30
