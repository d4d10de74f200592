"""Whether a server fits: its weights, what it computes with, and one request."""

from __future__ import annotations

import pytest

from llmexp.serving.task import SERVE
from tests.planning import make_plan

H100 = ("model=70b", "hardware=h100", "parallelism.tp=2")


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (("model=7b", "hardware=a800"), "yes"),
        (H100, "uncertain"),
        ((*H100, "engine.options.quantization=fp8"), "yes"),
        ((*H100, "engine.options.memory_fraction=0.8"), "no"),
        (("model=70b", "hardware=a800"), "no"),
    ],
)
def test_a_plan_of_a_server_says_whether_it_fits(words, verdict) -> None:
    plan = make_plan("task=serve", "engine=vllm", *words)
    fit = SERVE.fit(plan)  # type: ignore[arg-type]
    assert fit
    assert fit.verdict == verdict
    assert (plan.predicted is None) == (verdict == "no")


def test_the_parts_are_what_is_needed() -> None:
    fit = SERVE.fit(make_plan("task=serve", "engine=vllm", *H100))  # type: ignore[arg-type]
    assert fit
    assert sum(fit.parts.values()) == fit.need
    assert fit.parts["weights"] == pytest.approx(69e9, rel=0.01)
    assert fit.parts["a request's keys and values"] == 640 * 2 * 80 * 4 * 128 * 2


@pytest.mark.parametrize(
    "words", [("model=tiny", "hardware=cpu"), ("model=7b", "hardware=a800", "engine=transformers")]
)
def test_what_is_not_predicted_says_nothing(words) -> None:
    assert SERVE.fit(make_plan("task=serve", *words)) is None  # type: ignore[arg-type]
