"""The plan of task=serve: its load points, its server and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_requests import serving_plan

from llmexp.errors import ConfigError
from llmexp.plan.load_points import due_s


def test_rates_between_commas_are_the_loads_of_one_run() -> None:
    plan = serving_plan("serve.rate=1,4.5,max", "serve.concurrency=2,8", "serve.requests=7")
    assert [str(point) for point in plan.points] == ["1/s", "4.5/s", "max", "2 at a time", "8 at a time"]
    assert {point.requests for point in plan.points} == {7}
    assert "'serve.rate=[1,4.5,max]'" in plan.rerun_command
    assert serving_plan("serve.rate=4").points[0].rate_per_s == 4


def test_a_load_is_warmed_up_with_as_many_requests_as_it_has_at_work() -> None:
    plan = serving_plan("serve.rate=1,10,max", "serve.concurrency=2,100", "serve.requests=20")
    assert [point.warmup for point in plan.points] == [4, 20, 20, 4, 32]
    assert {point.warmup for point in serving_plan("serve.rate=1,max", "serve.warmup_requests=3").points} == {3}


def test_requests_of_a_load_are_due_at_the_same_times_for_every_engine() -> None:
    one, other = (serving_plan("serve.rate=5,7", f"engine={engine}") for engine in ("transformers", "llama_cpp"))
    times = [[due_s(point, plan.config.serve, 0, 30) for point in plan.points] for plan in (one, other)]
    assert times[0] == times[1]
    assert times[0][0][1] / times[0][1][1] != pytest.approx(7 / 5)


def test_the_engine_changes_the_id_and_the_tracker_does_not() -> None:
    ids = {serving_plan(f"engine={engine}").id for engine in ("transformers", "llama_cpp", "vllm")}
    assert len(ids) == 3
    assert serving_plan("tracking=none").id == serving_plan().id


def test_loads_with_a_trace_or_a_prefix_stand_in_one_table_with_others(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("due_s,prompt_tokens,output_tokens\n0,90,20\n")
    trace = f"serve.trace.file={tmp_path}/trace.csv"
    plain, shared, traced = (
        serving_plan(),
        serving_plan("serve.prefix.tokens=8"),
        serving_plan(trace, "serve.rate=[]"),
    )
    assert plain.work.keys() == shared.work.keys() == traced.work.keys()
    assert shared.work["prefix"] == "prefix of 8 tokens"
    assert (traced.work["prompt"], traced.work["output"]) == ("as traced", "as traced")
    assert (shared.positions - plain.positions, traced.positions) == (8, 110)


def test_a_request_of_a_trace_that_has_no_room_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("due_s,prompt_tokens,output_tokens\n0,90,20\n1,4000,200\n")
    with pytest.raises(ConfigError, match=r"trace\.csv:3: 4000 \+ 200 tokens are more than model\.max_positions=4096"):
        serving_plan(f"serve.trace.file={tmp_path}/trace.csv")


def test_the_weights_are_certain_memory_and_large_models_draw_their_own() -> None:
    small, large = serving_plan("engine=vllm"), serving_plan("engine=vllm", "model=7b", "hardware=a800")
    assert small.memory
    assert large.memory
    assert (small.server.weights, large.server.weights) == ("safetensors", "none")
    assert (small.dtype, large.dtype) == ("fp32", "bf16")
    assert large.memory.device == pytest.approx(2 * 6.74e9, rel=1e-3)
    cut = serving_plan("engine=vllm", "model=7b", "hardware=a800", "parallelism.tp=4")
    assert cut.memory
    assert (cut.devices, cut.memory.device) == (4, large.memory.device // 4)


def test_a_knob_of_another_engine_is_a_skip_and_one_of_none_is_an_error() -> None:
    assert "has no kv_dtype: it has attention," in str(serving_plan("engine.options.kv_dtype=fp8").skip)
    with pytest.raises(ConfigError, match=r"unknown engine\.options of engine=transformers 'blocksize'"):
        serving_plan("engine.options.blocksize=8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("serve.rate=0", r"serve.rate.0=0: must be a number above 0 or max"),
        ("serve.rate=fast", r"serve.rate.0=fast: must be a number above 0 or max"),
        ("serve.rate=[]", r"serve.rate and serve.concurrency are empty: set one of them, such as serve.rate=max"),
        ("serve.concurrency=0", r"serve.concurrency.0=0: must be a whole number of at least 1"),
        ("serve.prompt.tokens=4080", r"4080 \+ output 32 = 4112 tokens are more than model.max_positions=4096"),
        ("model=hf model.path=a/b", r"model=b: task=serve takes models that are given by their sizes"),
    ],
)
def test_wrong_input_has_one_line(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        serving_plan(*words.split())
    assert "\n" not in str(refused.value)
