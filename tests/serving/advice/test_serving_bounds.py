"""What bounds a server: the limit of which twice as much brings most, by the kind of load."""

from __future__ import annotations

import pytest

from llmexp.serving.advice import bounds_of
from tests.serving.advice.served_options import served

ONE_A100 = ("model=7b", "hardware=a100", "engine=vllm")


def first(*words: str) -> str:
    return bounds_of(served(*words))[0].limit


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ((*ONE_A100, "serve.rate=[]", "serve.concurrency=1"), "bytes of weights that each token reads"),
        ((*ONE_A100, "serve.prompt.tokens=4000", "serve.output.tokens=4"), "computing, of prompts above all"),
        (("model=7b", "hardware=rtx4090", "engine=vllm"), "room for keys and values"),
        ((*ONE_A100, "engine.options.max_sequences=4"), "requests at a time"),
        (("model=7b", "hardware=rtx4090", "engine=vllm", "parallelism.tp=8"), "links between devices"),
        (
            (*ONE_A100, "serve.prompt.tokens=16", "serve.output.tokens=4000", "engine.options.kv_dtype=auto"),
            "bytes of keys and values that each token reads",
        ),
    ],
)
def test_the_limit_that_brings_most_comes_first(words, limit) -> None:
    assert first(*words) == limit


def test_limits_are_those_that_more_would_lift_in_order() -> None:
    found = bounds_of(served(*ONE_A100))
    assert [one.gain for one in found] == sorted((one.gain for one in found), reverse=True)
    assert all(0.01 <= one.gain <= 1.0 for one in found)
    assert "links between devices" not in {one.limit for one in found}


def test_what_lifts_a_limit_does() -> None:
    words = ("model=7b", "hardware=rtx4090", "engine=vllm")
    bound, *_ = bounds_of(served(*words))
    assert "engine.options.kv_dtype=fp8" in bound.lift
    slow, fast = (served(*words, *more).predicted.rate for more in ((), ("engine.options.kv_dtype=fp8",)))
    assert slow < fast <= (1 + 2 * bound.gain) * slow


def test_what_is_done_already_lifts_nothing() -> None:
    words = ("model=70b", "hardware=h100", "engine=vllm", "parallelism.tp=8")
    plain, quantized = (bounds_of(served(*words, *more)) for more in ((), ("engine.options.quantization=fp8",)))
    assert "engine.options.quantization=fp8" in " ".join(one.lift for one in plain)
    assert "engine.options.quantization" not in " ".join(one.lift for one in quantized)
