"""What `llmexp advise task=serve` ranks first, as the command finds it."""

from __future__ import annotations

from llmexp.advice.goal import read_goal
from llmexp.advice.ranking import Ranking
from llmexp.cli.advised import Asked, advised
from llmexp.cli.arguments import run_parser

H100 = ("model=70b", "hardware=h100")


def ranking(*words: str, goal: str = "tokens_per_s", plain: bool = False) -> Ranking:
    args = run_parser().parse_intermixed_args(["task=serve", *words])
    return advised(args, Asked(read_goal(goal, None), plain))


def test_what_fits_for_sure_is_ranked_with_what_it_changes() -> None:
    found = ranking(*H100)
    assert found.first
    assert (found.first.verdict, list(found.first.changes)) == (
        "yes",
        ["weights in 8 bits", "keys and values in 8 bits"],
    )
    plain = ranking(*H100, plain=True)
    assert plain.first
    assert not plain.first.changes
    assert plain.first.rate < found.first.rate


def test_engines_that_are_predicted_alike_are_told_to_be_measured() -> None:
    found = ranking("model=7b", "hardware=rtx4090", "hardware.devices_per_node=1")
    engines = {option.plan.config.engine.name for option in found.undecided}
    assert {"vllm", "sglang"} <= engines


def test_the_most_for_the_money_at_a_rate_is_the_fewest_cards() -> None:
    words = (*H100, "serve.rate=20", "serve.slo.tpot_s=0.05", "serve.slo.ttft_s=1")
    found = ranking(*words, goal="tokens_per_usd")
    devices = [option.plan.devices for option in (*found.sure, *found.perhaps)]
    assert found.first
    assert found.first.plan.devices == min(devices) < max(devices)
