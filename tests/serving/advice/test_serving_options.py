"""Options of servers: what nobody rules out, in an order that makes sense on known machines, within the objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from llmexp.errors import ConfigError
from llmexp.launchers.serving.engines.vllm import ENGINE as VLLM
from llmexp.schema import HfModel
from llmexp.serving.advice.changes import bits_left, changes_of
from llmexp.serving.advice.open_keys import WEIGHTS, layouts
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.task import SERVE
from tests.serving.advice.served_options import layout, served, served_options

H100, RTX4090, A800 = (
    ("model=70b", "hardware=h100"),
    ("model=7b", "hardware=rtx4090", "hardware.devices_per_node=1"),
    ("model=13b", "hardware=a800"),
)


def rate(plan: ServingPlan) -> float:
    assert plan.predicted
    return plan.predicted.rate


def exact(plans: list[ServingPlan]) -> list[ServingPlan]:
    return [plan for plan in plans if not changes_of(plan)]


@pytest.mark.parametrize(
    ("words", "best", "best_exact"), [(H100, (2, 4), (4, 2)), (RTX4090, (1, 1), (1, 1)), (A800, (1, 8), (1, 8))]
)
def test_the_best_comes_first_and_copies_go_before_cutting(words, best, best_exact) -> None:
    """A model that fits few cards is copied rather than cut further, as links cost; 70B in bf16 needs four of them."""
    found = [plan for plan in served_options(*words) if plan.config.engine.name == "vllm"]
    assert [rate(plan) for plan in found] == sorted(map(rate, found), reverse=True)
    assert (layout(found[0]), layout(exact(found)[0])) == (best, best_exact)
    assert all(plan.skip is None and plan.predicted for plan in found)


def test_the_command_line_is_composed_for_shown_options_only() -> None:
    """Hundreds are thought of, and composing is what takes time."""
    asked: list[Mapping[str, str]] = []

    def plan_with(words: Mapping[str, str]) -> Any:
        asked.append(words)
        return served(*H100, *(f"{key}={value}" for key, value in words.items()))

    found = list(SERVE.options(plan_with, {"model": "70b", "hardware": "h100"}))
    assert len(asked) == len(found) + 4
    assert 10 < len(found) < 30


@pytest.mark.parametrize("words", [H100, RTX4090])
def test_no_option_is_beaten_on_as_few_cards_with_as_many_bits(words) -> None:
    found = served_options(*words, "engine=vllm")
    for one in found:
        for other in found:
            has_bits = all(mine >= its for mine, its in zip(bits_left(other), bits_left(one), strict=True))
            if other is not one and has_bits and other.devices <= one.devices:
                assert rate(other) <= 1.01 * rate(one)


def test_what_is_given_stays() -> None:
    found = served_options(*H100, "engine=sglang", "parallelism.tp=4", "engine.options.quantization=fp8")
    assert found
    for plan in found:
        assert (plan.config.engine.name, layout(plan)) == ("sglang", (4, 1))
        assert plan.config.engine.options["quantization"] == "fp8"


def test_engines_as_fast_as_each_other_have_their_best_options() -> None:
    """LightLLM and TGI schedule between iterations, and are beaten on as many cards."""
    engines = [plan.config.engine.name for plan in served_options(*RTX4090)]
    assert set(engines) == {"vllm", "sglang"}
    assert engines.count("sglang") <= 2


def test_an_engine_that_another_one_beats_is_left_out() -> None:
    """SGLang has no copies behind one address here, and eight copies beat eight cards of one."""
    assert {plan.config.engine.name for plan in served_options(*A800)} == {"vllm"}
    assert {plan.config.engine.name for plan in served_options(*A800, "parallelism.dp=1", "parallelism.tp=8")} > {
        "vllm"
    }


def test_a_checkpoint_is_not_offered_in_the_format_of_another() -> None:
    """Weights of 16 bits can be cut to 8 when they are loaded, but 4-bit formats are folders of their own."""
    plan = served(*A800, "engine=vllm")
    own = HfModel(name="mine", architecture="hf", path="somebody/mine")
    of_checkpoint = plan.model_copy(update={"config": plan.config.model_copy(update={"model": own})})
    for one, formats in ((plan, {None, "fp8", "awq"}), (of_checkpoint, {None, "fp8"})):
        assert {given.get(WEIGHTS) for given in layouts(one, VLLM, ())} == formats


def test_rates_within_an_objective_take_the_fewest_cards_first() -> None:
    words = (*H100, "serve.rate=20", "serve.slo.tpot_s=0.05", "serve.slo.ttft_s=1")
    found = [plan for plan in served_options(*words) if plan.config.engine.name == "vllm"]
    cards = [plan.devices for plan in found]
    assert cards == sorted(cards)
    assert cards[0] < cards[-1] <= 8
    for plan in found:
        assert plan.predicted
        (load,) = plan.predicted.loads
        assert (load.saturated, load.tpot_s <= 0.05, load.ttft_s <= 1) == (False, True, True)
    assert min(plan.devices for plan in exact(found)) > cards[0]


def test_a_short_time_per_token_takes_fewer_requests_at_a_time() -> None:
    words = ("model=7b", "hardware=a800", "hardware.devices_per_node=1", "engine=vllm")
    (free, *_), (bound, *_) = (exact(served_options(*words, *more)) for more in ((), ("serve.slo.tpot_s=0.03",)))
    assert bound.predicted
    assert bound.predicted.loads[0].tpot_s <= 0.03 < free.predicted.loads[0].tpot_s  # type: ignore[union-attr]
    assert rate(bound) < rate(free)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("model=7b", "hardware=cpu"), "hardware=cpu is not predicted yet"),
        (("model=7b", "hardware=a800", "engine=transformers"), "engine=transformers is not predicted yet"),
        (
            ("model=70b", "hardware=rtx4090", "hardware.devices_per_node=1"),
            "does not fit 1 device of hardware=rtx4090: the nearest, .* lacks .* GiB a device; 2 of them would hold it",
        ),
        (
            (*H100, "serve.rate=200", "serve.slo.tpot_s=0.05"),
            "nothing on 8 devices of hardware=h100 keeps serve.rate=200 serve.slo.tpot_s=0.05: .* would take .* dev",
        ),
        (
            (*H100, "serve.rate=20", "serve.slo.tpot_s=0.001"),
            "nothing on any number of hardware=h100 keeps .* has TPOT .* ms",
        ),
        (("model=7b", "hardware=a800", "engine=vllm", "parallelism.dp=9"), "hardware=a800 has 8 devices a node"),
    ],
)
def test_where_nothing_can_be_chosen_one_line_says_why(words, said) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        served_options(*words)
    assert "\n" not in str(raised.value)
