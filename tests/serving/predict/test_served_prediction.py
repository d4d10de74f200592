"""A served run's prediction in its plan: by load, with intervals, and the reason where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from llmexp.record.predicted import Prediction
from llmexp.serving.predict import unpredicted
from llmexp.serving.predict.rates import constants
from tests.planning import make_plan

WORDS = ("task=serve", "model=7b", "hardware=a100", "engine=vllm")


def made(*words: str) -> Any:
    return make_plan(*WORDS, *words)


def predicted(*words: str) -> Prediction:
    found: Prediction | None = made(*words).predicted
    assert found is not None
    return found


def test_every_load_has_its_throughput_tpot_and_ttft() -> None:
    found = predicted("serve.rate=[1,4,max]", "serve.concurrency=8")
    assert [one.load for one in found.loads] == ["1/s", "4/s", "max", "8 at a time"]
    for one in found.loads:
        assert one.low <= one.rate <= one.high
        assert one.tpot_low_s < one.tpot_s < one.tpot_high_s
        assert one.ttft_low_s < one.ttft_s < one.ttft_high_s
    assert found.rate == max(one.rate for one in found.loads)
    assert found.low < found.rate < found.high


def test_a_load_below_saturation_gets_what_it_asks_for() -> None:
    one, four, _ = predicted("serve.rate=[1,4,max]", "serve.output.tokens=100").loads
    assert (one.rate, four.rate) == (pytest.approx(100), pytest.approx(400))
    assert (one.high, one.saturated) == (pytest.approx(100), False)


def test_saturation_is_where_a_load_begins_to_wait() -> None:
    highest = predicted("serve.rate=1").saturation_per_s
    assert highest is not None
    below, above = predicted(f"serve.rate=[{0.9 * highest:.3f},{1.1 * highest:.3f}]").loads
    assert (below.saturated, above.saturated) == (False, True)
    assert below.low < below.rate


def test_parts_add_up_to_a_request() -> None:
    found = predicted("serve.rate=[]", "serve.concurrency=1", "serve.output.tokens=100")
    assert sum(found.parts_s.values()) == pytest.approx(100 / found.rate)
    assert found.most == "products"
    assert found.parts_s["communication"] == 0.0


def test_the_loads_time_is_the_runs_work() -> None:
    found = predicted("serve.rate=max", "serve.requests=2000", "serve.warmup_requests=10")
    assert found.work_s == pytest.approx(2010 * 128 / found.rate)
    assert predicted("serve.rate=[]", "serve.search=true").work_s is None


def test_a_search_has_its_saturation() -> None:
    found = predicted("serve.rate=[]", "serve.search=true")
    assert (found.loads, found.saturation_per_s) == ([], pytest.approx(predicted("serve.rate=max").saturation_per_s))


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        (("hardware=h100",), ()),
        (("engine.options.quantization=fp8", "hardware=h100"), ("hardware=h100",)),
        (("parallelism.tp=2",), ()),
        ((), ("model=13b",)),
        ((), ("serve.prompt.tokens=2000",)),
        (("engine.options.max_sequences=256",), ("engine.options.max_sequences=8",)),
        (("engine.options.kv_dtype=fp8", "engine.options.max_sequences=2000"), ("engine.options.max_sequences=2000",)),
        ((), ("serve.rate=[]", "serve.concurrency=1", "engine.options.compile=false")),
        (("engine.options.memory_fraction=0.9",), ("engine.options.memory_fraction=0.3",)),
    ],
)
def test_what_makes_a_server_faster_makes_its_prediction_faster(faster, slower) -> None:
    fast, slow = (predicted("serve.rate=max", *_given(words)).rate for words in (faster, slower))
    assert fast > slow


def test_without_graphs_one_request_is_slower_and_many_are_not() -> None:
    words = ("serve.rate=[]", "serve.concurrency=[1,256]")
    (one, many), (slow, same) = (predicted(*words, *more).loads for more in ((), ("+engine.options.compile=false",)))
    assert slow.tpot_s > 1.5 * one.tpot_s
    assert same.tpot_s == pytest.approx(many.tpot_s)


def test_copies_share_a_load() -> None:
    one, two = predicted("serve.rate=[2,max]"), predicted("serve.rate=[4,max]", "parallelism.dp=2")
    assert two.saturation_per_s == pytest.approx(2 * (one.saturation_per_s or 0))
    assert two.loads[0].tpot_s == pytest.approx(one.loads[0].tpot_s, rel=1e-3)
    assert two.loads[0].rate == pytest.approx(2 * one.loads[0].rate)


def test_intervals_say_how_many_numbers_of_how_many_sources_they_are_from() -> None:
    for kind in ("throughput", "tpot", "ttft"):
        low, high, rows, sources = constants()["intervals"][kind]
        assert 0 < low < 1 < high
        assert rows >= sources >= 6
    assert predicted("serve.rate=max").held_out_runs == constants()["intervals"]["throughput"][2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hardware=cpu",), "hardware=cpu is not predicted yet"),
        (("hardware.memory_bandwidth_bytes_per_s=null",), "without hardware.memory_bandwidth_bytes_per_s"),
        (
            ("hardware.interconnect_bandwidth_bytes_per_s=null", "parallelism.tp=2"),
            "without hardware.interconnect_bandwidth_bytes_per_s",
        ),
        (("parallelism.pp=2",), "parallelism.pp is not predicted yet"),
        (("serve.address=http://127.0.0.1:8000",), "a server that runs already is not predicted"),
        (("serve.turns=3",), "serve.turns is not predicted yet"),
        (("serve.prefix.tokens=16",), "serve.prefix is not predicted yet"),
        (("serve.rate=[]", "serve.ramp.first_per_s=1", "serve.ramp.last_per_s=2"), "only loads of serve.rate, serve."),
        (("engine=transformers",), "engine=transformers is not predicted yet"),
        (("engine.options.kv_offload_gb=4",), "engine.options.kv_offload_gb is not predicted yet"),
        (("engine.options.quantization=bitsandbytes",), "engine.options.quantization=bitsandbytes is not predicted"),
        (("engine.options.kv_dtype=int8_per_token_head",), "engine.options.kv_dtype=int8_per_token_head is not"),
        (("serve.dtype=fp32",), "serve.dtype=fp32 is not predicted yet"),
        (("model=70b",), "the weights leave no room for keys and values"),
    ],
)
def test_what_is_not_understood_is_said_in_one_line(words, said) -> None:
    plan = made(*_given(words))
    assert plan.predicted is None
    assert unpredicted(plan).startswith(said)
    assert "\n" not in unpredicted(plan)


def _given(words: tuple[str, ...]) -> list[str]:
    return [f"+{word}" if word.startswith("engine.options") else word for word in words]
