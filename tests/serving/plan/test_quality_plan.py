"""What serve.quality asks of a server, and what it cannot ask."""

from __future__ import annotations

import pytest
from served_requests import serving_plan

from llmexp.errors import ConfigError
from llmexp.launchers.serving.prompting.source import PromptSource
from llmexp.launchers.serving.quality.asking import prompts_of
from llmexp.serving.pilot import pilot
from llmexp.serving.plan.quality import expected_changes
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.task import SERVE

ASKED = "serve.quality=true"


def ids(plan: ServingPlan) -> list[list[int]]:
    return [prompt.ids for prompt in prompts_of(plan, PromptSource())]


def test_the_set_is_the_same_for_every_engine_and_seed_and_fits_the_requests_of_the_load() -> None:
    plan = serving_plan(ASKED)
    assert [len(each) for each in ids(plan)] == [64] * 16
    assert ids(plan) == ids(serving_plan(ASKED, "engine=vllm", "seed=3", "serve.rate=4"))
    short = serving_plan(ASKED, "serve.prompt.tokens=10", "serve.output.tokens=20", "serve.quality.prompts=2")
    assert [len(each) for each in ids(short)] == [14] * 2
    assert short.positions == 30, "the server is the one that the load needs"


def test_a_set_that_is_asked_for_is_another_run_and_none_is_the_run_of_before() -> None:
    assert serving_plan(ASKED).id != serving_plan().id
    assert serving_plan("serve.quality=false").id == serving_plan().id


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve.weights=own engine=vllm", "serve.weights=own has none"),
        ("serve.adapters.number=2 engine=vllm", "serve.adapters has others"),
        ("serve.address=http://127.0.0.1:9 engine=vllm", "nobody knows which weights model=tiny has there"),
        ("serve.quality.prompt_tokens=90", "serve.quality.prompt_tokens=90: the server has room for requests of 96"),
        ("serve.quality.output_tokens=96", "serve.quality.output_tokens=96: the server has room"),
    ],
)
def test_what_could_not_be_compared_is_refused(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"serve\.quality") as refused:
        serving_plan(ASKED, *words.split())
    assert said in str(refused.value)


def test_weights_that_are_compared_lie_in_a_folder() -> None:
    large = ("model=7b", "engine=vllm", "hardware=a800")
    assert serving_plan(*large).server.weights == "none"
    assert serving_plan(*large, ASKED).server.weights == "safetensors"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("engine=vllm engine.options.kv_dtype=auto", []),
        ("engine=vllm hardware=a800 engine.options.kv_dtype=fp8", ["engine.options.kv_dtype=fp8"]),
        ("engine.options.quantization=bnb-8bit", ["engine.options.quantization=bnb-8bit"]),
        ("engine=vllm hardware=a800 engine.options.quantization=gptq", []),
    ],
)
def test_formats_that_only_the_server_computes_in_let_a_change_be_expected(words: str, expected: list[str]) -> None:
    plan = serving_plan(ASKED, *words.split())
    assert expected_changes(plan.config) == expected
    assert ("changes are expected by" in SERVE.describe(plan)["quality"]) == bool(expected)


def test_a_pilot_asks_nothing() -> None:
    found = pilot(serving_plan(ASKED, "serve.requests=1000", "serve.concurrency=8", "serve.rate=[]"))
    assert found
    assert found.config.serve.quality is None


def test_the_server_is_asked_for_the_likeliest_tokens_whatever_the_load_draws() -> None:
    drawn = ("serve.sampling.temperature=0.8", "serve.sampling.top_p=0.9", "hardware=a800", ASKED)
    form = serving_plan(*drawn, "engine=vllm").server.form
    assert form.body["temperature"] == 0.8
    told = form.telling().body
    assert (told["temperature"], told["logprobs"]) == (0, 1)
    assert not {"seed", "top_p"} & told.keys()
    assert "logprobs" not in form.body, "the load's answers stay as they were"
    parameters = serving_plan(*drawn, "engine=lightllm").server.form.telling().body["parameters"]
    assert (parameters["do_sample"], "temperature" in parameters) == (False, False)
