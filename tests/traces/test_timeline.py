"""A step's timeline: which bars it has, from when to when, worked out by hand."""

from __future__ import annotations

from llmexp.record.ranges import MODULE, PHASE_END, STEP
from llmexp.record.timeline import COMMUNICATION, COMPUTATION, COPIES, IDLE, PHASE
from llmexp.traces.breakdown import read_profile
from llmexp.traces.timeline import timeline


def drawn(made, name: str = "trace.json"):
    return timeline(read_profile(made.file(name)))


def test_a_step_on_a_device_begins_with_its_first_kernel_and_names_modules(made) -> None:
    for begin in (0, 10_000):
        made.range(STEP, begin, begin + 5000)
        made.range(MODULE + "QKV", begin + 100, begin + 200)
        made.range(MODULE + "Down", begin + 300, begin + 400)
        made.kernel("gemm", begin + 1000, begin + 2000, launched=begin + 150)
        made.kernel("gemm", begin + 2500, begin + 3000, launched=begin + 350)
        made.range(PHASE_END + "forward", begin + 500, begin + 500)
        made.kernel("ncclDevKernel_AllReduce", begin + 2800, begin + 3600, launched=begin + 600, stream=8)
        made.kernel("Memcpy HtoD", begin + 3600, begin + 3700, launched=begin + 700)
        made.range(PHASE_END + "backward", begin + 4000, begin + 4000)
    found = drawn(made)
    assert (found.source, found.step, found.length_ms) == ("trace.json", "step 2 of 2", 2.7)
    assert found.bars[PHASE, "forward"] == [(0.0, 2.0)]
    assert found.bars[COMPUTATION, "QKV"] == [(0.0, 1.0)]
    assert found.bars[COMPUTATION, "Down"] == [(1.5, 0.5)]
    assert found.bars[COMMUNICATION, COMMUNICATION] == [(1.8, 0.8)]
    assert found.bars[COPIES, COPIES] == [(2.6, 0.1)]
    assert found.bars[IDLE, IDLE] == [(1.0, 0.5)]
    assert found.rows == [PHASE, COMPUTATION, COMMUNICATION, COPIES, IDLE]


def test_work_of_one_module_with_no_gap_that_can_be_seen_is_one_bar(made) -> None:
    for begin in range(0, 40_000, 10):
        made.operator("aten::mm", begin, begin + 4)
    made.operator("aten::mm", 45_000, 46_000)
    found = drawn(made)
    assert found.bars[COMPUTATION, "GEMM"] == [(0.0, 39.994), (45.0, 1.0)]
    assert len(found.bars[IDLE, IDLE]) == 4000


def test_a_trace_without_steps_is_drawn_whole_by_kind_of_work(made) -> None:
    made.operator("aten::mm", 1000, 2000)
    made.operator("aten::add", 2000, 2500)
    found = drawn(made)
    assert (found.step, found.length_ms, found.rows) == ("", 1.5, [COMPUTATION])
    assert found.labels(COMPUTATION) == ["GEMM", "elementwise"]


def test_a_step_on_a_cpu_is_its_range(made) -> None:
    made.range(STEP, 0, 1000)
    made.operator("aten::mm", 100, 300)
    found = drawn(made)
    assert found.length_ms == 1.0
    assert found.bars[IDLE, IDLE] == [(0.0, 0.1), (0.3, 0.7)]


def test_a_trace_whose_last_step_has_no_work_shows_the_one_before(made) -> None:
    made.range(STEP, 0, 1000)
    made.operator("aten::mm", 100, 300)
    made.range(STEP, 2000, 3000)
    assert drawn(made).step == "step 1 of 2"


def test_what_backward_recomputes_is_a_phase_of_its_own(made) -> None:
    made.range(STEP, 0, 1000)
    made.range(MODULE + "QKV", 0, 100)
    made.operator("aten::mm", 10, 100)
    made.range(PHASE_END + "forward", 200, 200)
    made.operator("MmBackward0", 300, 600, thread=2)
    made.link((1, 10), (2, 300))
    made.range(MODULE + "QKV", 400, 490, thread=2)
    made.operator("aten::mm", 410, 490, thread=2)
    made.range(PHASE_END + "backward", 900, 900)
    found = drawn(made)
    assert found.bars[PHASE, "recomputed forward"] == [(0.41, 0.08)]
    assert set(found.labels(PHASE)) == {"forward", "backward", "recomputed forward"}
