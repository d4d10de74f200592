"""Cards for a rate: the fewest that sustain it within the objective, on any number of machines, and to be sure."""

from __future__ import annotations

import pytest

from llmexp.serving.advice import cards_for_rate
from llmexp.serving.advice.cards import is_kept
from llmexp.serving.advice.trials import tried
from llmexp.serving.task import SERVE
from tests.serving.advice.served_options import served

WORDS = ("model=13b", "hardware=a800", "engine=vllm")
SLO = ("serve.slo.tpot_s=0.05", "serve.slo.ttft_s=0.5")


def test_one_copy_less_would_not_do() -> None:
    plan = served(*WORDS, *SLO, "serve.rate=40")
    found = cards_for_rate(plan)
    assert found
    assert found.devices == found.copies > 1
    kept = {copies: tried(plan, {"parallelism.dp": copies}) for copies in (found.copies - 1, found.copies)}
    assert [is_kept(trial) for trial in kept.values() if trial] == [False, True]


def test_cards_grow_with_the_rate_beyond_a_machine_and_are_more_to_be_sure() -> None:
    found = [cards_for_rate(served(*WORDS, *SLO, f"serve.rate={rate}")) for rate in (5, 50, 500)]
    devices = [one.devices for one in found if one]
    assert devices == sorted(devices)
    assert devices[-1] == pytest.approx(10 * devices[-2], rel=0.2)
    assert devices[-1] > 8
    assert all(one and one.sure_devices and one.sure_devices > one.devices for one in found[1:])


def test_cards_that_are_cut_count_all() -> None:
    one, cut = (served(*WORDS, *SLO, "serve.rate=40", f"parallelism.tp={tp}") for tp in (1, 4))
    found, of_four = cards_for_rate(one), cards_for_rate(cut)
    assert found
    assert of_four
    assert of_four.devices == 4 * of_four.copies > found.devices


def test_no_number_of_cards_makes_one_request_faster() -> None:
    plan = served(*WORDS, "serve.rate=1", "serve.slo.tpot_s=0.001")
    assert cards_for_rate(plan) is None
    assert SERVE.describe(plan)["cards"] == "no number of them keeps serve.slo in this layout"


def test_requests_that_pile_up_are_not_kept_however_fast_each_is() -> None:
    plan = served(*WORDS, "serve.rate=40", "serve.slo.tpot_s=10")
    assert plan.predicted
    found = cards_for_rate(plan)
    assert found
    assert (found.copies - 1) * plan.predicted.saturation_per_s < 40 <= found.copies * plan.predicted.saturation_per_s


def test_the_time_to_the_last_token_counts() -> None:
    words = (*WORDS, "serve.rate=40")
    loose, tight = (cards_for_rate(served(*words, f"serve.slo.end_to_end_s={limit}")) for limit in (20, 4))
    assert loose
    assert tight
    assert tight.devices > loose.devices


def test_a_plan_says_its_cards_bounds_and_changes() -> None:
    told = SERVE.describe(served(*WORDS, *SLO, "serve.rate=40", "engine.options.kv_dtype=fp8"))
    assert " keep serve.slo as predicted, " in told["cards"]
    assert "with twice of it" in told["bound"]
    assert told["changes"] == "keys and values in 8 bits"
    assert SERVE.describe(served(*WORDS, "serve.rate=40"))["cards"] == ""
    assert "bound" not in SERVE.describe(served("model=tiny", "hardware=cpu"))
