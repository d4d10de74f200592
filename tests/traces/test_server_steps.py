"""Servers' own traces, small enough to work out by hand; times are microseconds, as in the file."""

from __future__ import annotations

import pytest

from llmexp.record.breakdown import Breakdown, BreakdownShare
from llmexp.record.ranges import BOTH, DECODE, PREFILL
from llmexp.traces.breakdown import break_down, read_profile
from llmexp.traces.server_names import ROWS, module_of, phase_of


def call(made, name: str, begin: float, end: float) -> None:
    made.events.append({"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": 1, "ts": begin})
    made.events[-1]["dur"] = end - begin


def module(made, kind: str, begin: float, end: float) -> None:
    call(made, f"nn.Module: {kind}_0", begin, end)


def broken_down(made) -> Breakdown:
    found = break_down(read_profile(made.file()))
    assert sum(phase.time_ns for phase in found.phases) == found.window_ns
    assert sum(each.exclusive_ns for each in found.modules) == found.compute_ns
    return found


def phase(found: Breakdown, name: str) -> BreakdownShare:
    return next(each for each in found.phases if each.phase == name)


def test_steps_of_vllm_are_of_prefill_of_decode_or_of_both(made) -> None:
    made.range("execute_context_1(64)_generation_0(0)", 0, 10)
    made.operator("aten::mm", 2, 8)
    made.range("execute_context_2(70)_generation_1(1)", 20, 30)
    made.operator("aten::mm", 21, 29)
    made.range("execute_context_0(0)_generation_0(0)", 40, 41)  # it has no tokens, and is no step
    made.range("execute_context_0(0)_generation_3(3)", 50, 60)
    made.operator("aten::mm", 52, 56)
    made.range("execute_context_0(0)_generation_3(3)", 70, 80)
    made.operator("aten::mm", 71, 74)
    found = broken_down(made)
    assert found.steps == 4
    assert {each.phase: each.steps for each in found.phases} == {"": 0, PREFILL: 1, BOTH: 1, DECODE: 2}
    assert phase(found, PREFILL).gemm_ns == 6_000
    assert phase(found, BOTH).gemm_ns == 8_000
    assert phase(found, DECODE).compute_ns == 7_000


def test_what_follows_the_models_work_belongs_to_its_step_and_waiting_for_requests_to_none(made) -> None:
    made.range("execute_context_1(64)_generation_0(0)", 0, 10)
    made.operator("aten::mm", 1, 8)
    made.operator("aten::argmax", 12, 15)  # the draw of its token
    made.range("execute_context_0(0)_generation_1(1)", 100, 110)
    made.operator("aten::mm", 104, 108)
    found = broken_down(made)
    assert phase(found, PREFILL).compute_ns == 10_000
    assert phase(found, DECODE).idle_ns == 4_000 + 2_000  # before its operator, and to the end of its range
    assert phase(found, "").time_ns == 85_000  # 15 to 100


def test_calls_of_modules_are_the_parts_of_the_model(made) -> None:
    made.range("execute_context_0(0)_generation_1(1)", 0, 100)
    call(made, "vllm/model_executor/models/llama.py(534): forward", 0, 95)
    module(made, "LlamaDecoderLayer", 10, 80)
    module(made, "LlamaAttention", 12, 40)
    module(made, "QKVParallelLinear", 13, 17)
    made.operator("aten::mm", 14, 16)
    module(made, "Attention", 20, 30)
    made.operator("vllm::unified_attention_with_output", 21, 28)
    module(made, "RowParallelLinear", 31, 39)
    made.operator("aten::mm", 32, 35)
    module(made, "LlamaMLP", 45, 70)
    module(made, "RowParallelLinear", 60, 69)
    made.operator("aten::mm", 61, 65)
    module(made, "LogitsProcessor", 82, 90)
    made.operator("aten::mm", 83, 84)
    parts = {"/".join(each.path): (each.exclusive_ns, each.kinds) for each in broken_down(made).modules}
    assert parts == {
        "Decoder layer/Attention/QKV": (2_000, {"GEMM": 2_000}),
        "Decoder layer/Attention/Core attention": (7_000, {"attention": 7_000}),
        "Decoder layer/Attention/Output": (3_000, {"GEMM": 3_000}),
        "Decoder layer/MLP/Down": (4_000, {"GEMM": 4_000}),
        "LM head": (1_000, {"GEMM": 1_000}),
    }


def test_a_compiled_model_works_on_a_cpu_where_it_calls_no_operator(made) -> None:
    made.range("execute_context_0(0)_generation_1(1)", 0, 30)
    made.range("## Call CompiledFxGraph None ##", 10, 20)
    made.operator("_C::onednn_mm", 12, 15)
    found = broken_down(made)
    assert (found.compute_ns, found.kinds["GEMM"], found.idle_ns) == (10_000, 3_000, 20_000)


def test_another_trace_with_calls_of_modules_is_read_as_before(made) -> None:
    module(made, "LlamaDecoderLayer", 0, 50)
    made.operator("aten::mm", 10, 20)
    found = break_down(read_profile(made.file()))
    assert (found.steps, [each.path for each in found.modules]) == (0, [()])


def test_the_collectives_of_a_phase_are_told_apart(made) -> None:
    made.range("execute_context_0(0)_generation_1(1)", 0, 40)
    made.kernel("sm90_xmma_gemm_bf16", 5, 10, launched=2)
    made.kernel("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", 10, 14, launched=3)
    made.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 14, 17, launched=4)
    made.kernel("ncclDevKernel_AllGather_RING_LL", 20, 22, launched=5)
    found = broken_down(made)
    assert phase(found, DECODE).collectives == {"AllReduce": 7_000, "AllGather": 2_000}
    assert phase(found, DECODE).communication_ns == 9_000


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_1024_context_0(sq0sk0sqsq0sqsk0)_generation_1024(sq1024sk9sqsq1sqsk1)", DECODE),
        ("execute_64_context_1(sq64sk64sqsq4096sqsk4096)_generation_0(sq0sk0sqsq0sqsk0)", PREFILL),
        ("execute_context_0(0)_generation_0(0)", ""),
        ("sglang/srt/model_executor/model_runner.py(2101): forward_extend", PREFILL),
        ("sglang/srt/model_executor/model_runner.py(2050): forward_decode", DECODE),
        ("sglang/srt/models/llama.py(300): forward", None),
        ("execute_model", None),
    ],
)
def test_phases_by_the_names_of_steps(name: str, phase: str | None) -> None:
    assert phase_of(name) == phase


def test_modules_by_the_names_of_their_classes() -> None:
    names = (
        "Attention",
        "Qwen3Attention",
        "RadixAttention",
        "Llama3RotaryEmbedding",
        "SiluAndMul",
        "RowParallelLinear",
    )
    told = [module_of(f"nn.Module: {name}_12") for name in names]
    assert told == ["Core attention", "Attention", "Core attention", "RoPE", "Activation", ROWS]
    assert module_of("nn.Module: LlamaForCausalLM_0") is None
    assert module_of("LlamaAttention") is None
