"""The plan of task=serve: its load points, its server and what it refuses."""

from __future__ import annotations

import pytest
from served_requests import serving_plan

from llmexp.errors import ConfigError
from llmexp.serving.plan.load_points import due_s
from llmexp.serving.task import SERVE
from llmexp.sweep.cost import cost_line, costs_of
from llmexp.sweep.measuring import folder_of


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


def test_rates_say_how_long_their_requests_take_to_send_and_other_loads_do_not() -> None:
    plan = serving_plan("serve.rate=2,10", "serve.requests=20", "serve.warmup_requests=4", "measure.repeats=3")
    assert plan.load_s == 24 / 2 + 24 / 10
    [cost] = costs_of([plan], [folder_of(plan)])
    assert (cost.held_s, cost.source) == (3 * plan.load_s, "rates")
    assert "1 run: at least 43 s" in cost_line([cost])
    for other in ("serve.rate=2,max", "serve.concurrency=2"):
        assert serving_plan(other).load_s is None


def test_a_server_over_several_devices_costs_the_time_of_all() -> None:
    words = ("serve.rate=1", "serve.requests=3596", "serve.warmup_requests=4", "model=7b", "hardware=a800")
    plan = serving_plan(*words, "engine=vllm", "parallelism.tp=4", "hardware.price_per_device_hour_usd=2")
    [cost] = costs_of([plan], [folder_of(plan)])
    assert (cost.held_s, cost.device_hours, cost.usd) == (3600, 4, 8)
    assert "at least 1 h on 4 devices, 4.0 device-hours, 8.00 USD" in cost_line([cost])


def test_the_flops_of_a_server_are_those_of_its_layers() -> None:
    """2 for each weight of its layers' matrices and each of the 16 + 32 tokens of 1032 requests."""
    many = ("serve.requests=1000", "serve.output.tokens=32")
    plan = serving_plan(*many, "serve.prompt.tokens=16")
    shape = plan.config.model
    heads = 2 * shape.num_heads * shape.head_dim + 2 * shape.num_kv_heads * shape.head_dim
    weights = shape.num_layers * shape.hidden_size * (heads + 3 * shape.intermediate_size)
    assert plan.least_flops == 2 * weights * 48 * 1032
    assert serving_plan(*many, "engine=vllm", "serve.address=http://localhost:1").least_flops is None
    large = (*many, "hardware=a800", "model=7b", "engine=vllm")
    assert serving_plan(*large).peak_flops_per_s == 312e12
    assert serving_plan(*large, "engine.options.quantization=fp8").peak_flops_per_s is None


def test_requests_of_a_load_are_due_at_the_same_times_for_every_engine() -> None:
    one, other = (serving_plan("serve.rate=5,7", f"engine={engine}") for engine in ("transformers", "llama_cpp"))
    times = [[due_s(point, plan.config.serve, 0, 30) for point in plan.points] for plan in (one, other)]
    assert times[0] == times[1]
    assert times[0][0][1] / times[0][1][1] != pytest.approx(7 / 5)


def test_the_engine_changes_the_id_and_the_tracker_does_not() -> None:
    ids = {serving_plan(f"engine={engine}").id for engine in ("transformers", "llama_cpp", "vllm")}
    assert len(ids) == 3
    assert serving_plan("tracking=none").id == serving_plan().id


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
    copies = serving_plan("engine=vllm", "model=7b", "hardware=a800", "parallelism.pp=2", "parallelism.dp=3")
    assert copies.memory
    assert (copies.devices, copies.memory.device) == (6, large.memory.device // 2)


@pytest.mark.parametrize("knob", ["quantization=fp8", "weights_offload_gb=10"])
def test_weights_that_a_device_may_hold_less_of_are_no_certain_memory(knob: str) -> None:
    assert serving_plan("engine=vllm", "model=13b", "hardware=rtx4090").memory
    assert serving_plan("engine=vllm", "model=13b", "hardware=rtx4090", f"engine.options.{knob}").memory is None


def test_a_knob_of_another_engine_is_a_skip_and_one_of_none_is_an_error() -> None:
    assert "has no kv_dtype: it has attention," in str(serving_plan("engine.options.kv_dtype=fp8").skip)
    with pytest.raises(ConfigError, match=r"unknown engine\.options of engine=transformers 'blocksize'"):
        serving_plan("engine.options.blocksize=8")


def test_adapters_are_another_work_and_an_engine_without_them_is_skipped() -> None:
    plain, adapted = (serving_plan("engine=vllm", *words) for words in ([], ["serve.adapters.number=3"]))
    assert (plain.comparison_key["adapters"], adapted.comparison_key["adapters"]) == ("", "3 of rank 8")
    assert plain.id != adapted.id
    assert adapted.server.form.adapters == 3
    assert "not support adapters here" in str(serving_plan("serve.adapters.number=3").skip)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("serve.address=http://localhost:1 engine=vllm serve.adapters.number=2", r"serve.adapters are passed to a"),
        ("serve.rate=0", r"serve.rate.0=0: must be a number above 0 or max"),
        ("serve.rate=fast", r"serve.rate.0=fast: must be a number above 0 or max"),
        ("serve.rate=[]", r"serve.rate and serve.concurrency are empty: set one of them, such as serve.rate=max"),
        ("serve.concurrency=0", r"serve.concurrency.0=0: must be a whole number of at least 1"),
        ("serve.prompt.tokens=4080", r"prompt 4080 \+ output 32 = 4112 tokens are more than model.max_positions=4096"),
        ("model=hf model.path=a/b", r"model=b: task=serve takes a folder.s own weights"),
    ],
)
def test_wrong_input_has_one_line(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        serving_plan(*words.split())
    assert "\n" not in str(refused.value)


def test_the_plan_says_what_is_profiled() -> None:
    told = SERVE.describe(serving_plan("serve.rate=4,max", "serve.profile=true", "serve.profile_s=0.5"))
    assert told["profile"] == "max once more, in two windows of 0.5 s"
    assert SERVE.describe(serving_plan())["profile"] == ""


def test_of_a_search_alone_nothing_is_profiled_and_the_plan_says_so() -> None:
    words = ("serve.rate=[]", "serve.slo.ttft_s=1", "serve.search.start_per_s=1")
    assert SERVE.describe(serving_plan(*words))["profile"] == ""
    assert SERVE.describe(serving_plan(*words, "serve.profile=true"))["profile"].startswith("none: only loads of")
