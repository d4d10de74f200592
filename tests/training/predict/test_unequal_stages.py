"""A pipeline of unequal cards: the share of the layers, the pace of the slowest, and slow links."""

from __future__ import annotations

from itertools import product

import pytest

from llmexp.schema import HardwareConfig
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.changed import keys_of_file
from llmexp.training.predict.unequal_stages import UnequalPipeline, on_card, pipeline_s, shared_out, unequal_pipeline
from tests.planning import make_plan

WORDS = ("model=7b", "engine=megatron", "method=F", "hardware=a100", "hardware.devices_per_node=1")
WORDS += ("hardware.nodes=2", "parallelism.pp=2", "batch.accumulation=32", "data.seq_len=2048")
COMMAND = (*WORDS, "hardware.network_bandwidth_bytes_per_s=12.5e9")


def simulated(*cards: str, network: str = "12.5e9") -> tuple[TrainingPlan, UnequalPipeline]:
    plan = make_plan(*WORDS, f"hardware.network_bandwidth_bytes_per_s={network}")
    assert plan.predicted is not None
    return plan, unequal_pipeline(plan, [HardwareConfig.model_validate(keys_of_file(name)) for name in cards])


def test_equal_cards_have_equal_shares_and_the_predicted_speed() -> None:
    plan, found = simulated("a100", "a100")
    assert found.layers == (16, 16)
    assert found.rate == found.equal_rate == pytest.approx(plan.predicted.rate, rel=0.03)


def test_the_faster_card_gets_more_layers_and_the_pipeline_its_speed_back() -> None:
    plan, found = simulated("a100", "rtx3090")
    assert found.layers[0] > 1.5 * found.layers[1]
    assert sum(found.layers) == 32
    assert found.equal_rate < 0.8 * found.rate < 0.8 * plan.predicted.rate
    assert simulated("rtx3090", "a100")[1].layers == found.layers[::-1]


def test_over_the_internet_the_link_is_slowest_whatever_the_shares() -> None:
    _, found = simulated("a100", "rtx3090", network="12.5e6")
    assert found.slowest == "the link"
    assert found.rate == pytest.approx(found.equal_rate, rel=0.05)
    assert found.rate < simulated("a100", "rtx3090")[1].rate / 5


def test_another_card_has_the_links_of_the_plan() -> None:
    a6000 = HardwareConfig.model_validate(keys_of_file("a6000"))
    plan = make_plan("model=7b", "hardware=rtx4090", "hardware.devices_per_node=2")
    assert a6000.peer_access
    assert not on_card(plan, a6000).config.hardware.peer_access


@pytest.mark.parametrize("layer_s", [(1.0, 1.0), (1.0, 3.0), (2.0, 3.0, 5.0), (0.1, 9.0, 1.0)])
def test_no_other_share_has_a_faster_slowest_stage(layer_s: tuple[float, ...]) -> None:
    def slowest(shares: tuple[int, ...]) -> float:
        return max(share * seconds for share, seconds in zip(shares, layer_s, strict=True))

    shares = tuple(shared_out(12, layer_s))
    others = [each for each in product(range(1, 13), repeat=len(layer_s)) if sum(each) == sum(shares) == 12]
    assert slowest(shares) == min(map(slowest, others))


@pytest.mark.parametrize(("stage_s", "link_s"), [((1.0, 2.0, 1.5), 0.1), ((1.0, 1.0), 3.0), ((2.0, 0.5), 0.0)])
def test_micro_batches_follow_each_other_as_one_by_one(stage_s: tuple[float, ...], link_s: float) -> None:
    steps = [time for stage in stage_s for time in (stage, link_s)][:-1]
    free = [0.0] * len(steps)
    for _ in range(7):
        arrives = 0.0
        for place, time in enumerate(steps):
            arrives = free[place] = max(arrives, free[place]) + time
    assert pipeline_s(stage_s, link_s, 7) == pytest.approx(free[-1])


def test_a_plan_says_the_shares_and_that_they_are_simulated(llmexp) -> None:
    code, out, _ = llmexp("plan", *COMMAND, "--stages", "a100,rtx3090")
    layers = simulated("a100", "rtx3090")[1].layers
    assert code == 0
    assert f"with layers {layers[0]} on a100, {layers[1]} on rtx3090;" in out
    assert "  stages     simulated: " in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stages", "a100"), "names 1 cards for parallelism.pp=2"),
        (("--stages", "a100,a101"), "unknown hardware of --stages 'a101': did you mean a10"),
        (("--stages", "a100,cpu"), "unknown hardware of --stages 'cpu'"),
        (("--stages", "a100,auto"), "unknown hardware of --stages 'auto'"),
        (("--stages", "a100,v100"), "precision=bf16_mixed has no rates on v100"),
        (("--stages", "a100,a100", "--json"), "--stages prints words: leave --json out"),
        (
            ("--stages", "a100,a100", "hardware.memory_bandwidth_bytes_per_s=null"),
            "is not predicted: without hardware.",
        ),
        (("--stages", "a100,a100", "parallelism.virtual_stages=2"), "use parallelism.virtual_stages=1"),
    ],
)
def test_a_pipeline_that_cannot_be_is_one_line(words: tuple[str, ...], said: str, llmexp) -> None:
    code, out, err = llmexp("plan", *COMMAND, *words)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert said in err


def test_another_task_has_no_stages(llmexp) -> None:
    code, _, err = llmexp("plan", "task=serve", "model=7b", "hardware=a100", "--stages", "a100,a100")
    assert (code, "applies to training only" in err) == (2, True)
