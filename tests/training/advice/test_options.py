"""The options of a training: what is open, and the largest batch of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from llmexp.errors import ConfigError
from llmexp.registry import get_task
from llmexp.training.advice.options import options
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.training_plan import TrainingPlan
from tests.open_plans import open_plans_of

CARD = ("model=7b", "hardware=rtx4090", "hardware.devices_per_node=1")


def options_of(*words: str, **more: str) -> list[TrainingPlan]:
    choice = open_plans_of(*words)
    fixed = choice.fixed | {key.replace("__", "."): value for key, value in more.items()}
    return list(get_task(choice.typed.config.task.name).options(choice.plan_with, fixed))


@pytest.fixture(scope="module")
def finetuning() -> list[TrainingPlan]:
    return options_of(*CARD, "task=finetune")


def test_one_card_has_adapters_and_offload_and_no_degrees(finetuning) -> None:
    codes = {plan.method for plan in finetuning}
    assert {"L+F", "QL+F+R", "F+R+Z3+O", "L+F+C"} <= codes
    assert not any("Z1" in method for method in codes)
    assert all(plan.dims.world_size == 1 for plan in finetuning)


def test_each_has_the_largest_power_of_two_that_fits_for_sure_or_the_next_that_may(finetuning) -> None:
    verdicts = {}
    for plan in finetuning:
        micro, verdict = plan.batch.micro, fit_of(plan, plan.batch.micro).verdict
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        if verdict == "yes":
            doubled = 2 * micro * plan.config.data.seq_len
            assert fit_of(plan, 2 * micro).verdict != "yes" or doubled > 1 << 17
        elif verdict == "no":
            assert micro == 1
    assert verdicts.keys() == {"yes", "uncertain", "no"}


def test_states_that_do_not_fit_are_tried_smaller(finetuning) -> None:
    full = [plan for plan in finetuning if plan.method == "F"]
    assert {plan.config.precision.name for plan in full} == {"bf16_mixed", "bf16_pure"}
    assert "adamw8bit" in {plan.config.optimizer.name for plan in full}


def test_typed_keys_stay_as_they_are() -> None:
    found = options_of("model=13b", "hardware=a800", "method=F+R", "batch.micro=2", "precision=bf16_mixed")
    assert {plan.method for plan in found} == {"F+R"}
    assert {plan.batch.micro for plan in found} == {2}
    assert {plan.config.precision.name for plan in found} == {"bf16_mixed"}
    assert len({plan.config.engine.name for plan in found}) > 1


def test_r_in_a_part_of_the_layers_is_an_option_where_r_is(finetuning) -> None:
    parts = {(plan.techniques.recomputation, plan.config.memory.recompute_layers) for plan in finetuning}
    assert parts == {(False, None), (True, None), (True, 16), (True, 8)}
    of_adapters = {
        plan.config.memory.recompute_layers: plan
        for plan in finetuning
        if (plan.config.engine.name, plan.method, plan.config.kernels.liger) == ("deepspeed", "L+F+R", False)
        and fit_of(plan, plan.batch.micro).verdict == "yes"
    }
    whole = of_adapters.pop(None)
    assert of_adapters.keys() == {16, 8}
    assert all(part.batch.micro < whole.batch.micro for part in of_adapters.values())
    assert max(part.predicted.rate for part in of_adapters.values()) > whole.predicted.rate


def test_over_a_slow_network_the_fastest_shares_out_its_state_within_each_node() -> None:
    words = ("model=llama3-8b", "hardware=h100", "engine=torch", "precision=bf16_mixed", "parallelism.pp=1")
    found = options_of(*words, "hardware.nodes=4", "data.seq_len=4096", "hardware.network_bandwidth_bytes_per_s=2e9")
    assert {plan.dims.shard for plan in found} == {None, 4, 8}
    assert all(plan.dims.shard in (None, 8 // plan.dims.tp) for plan in found)
    # Of longer passes both hide the network.
    sharded = [plan for plan in found if plan.techniques.zero_stage > 1 and plan.dims.tp == 1 and plan.batch.micro < 32]
    assert max(sharded, key=lambda plan: plan.predicted.rate).dims.shard == 8
    assert all(plan.dims.shard is None for plan in options_of(*words, "hardware.nodes=1", "data.seq_len=4096"))


def test_a_number_of_layers_that_is_typed_stays() -> None:
    found = options_of(*CARD, "task=finetune", "engine=torch", "memory.recompute_layers=3", "method=L+F+R")
    assert {plan.config.memory.recompute_layers for plan in found} == {3}


def test_a_global_batch_is_kept_by_every_layout() -> None:
    found = options_of("model=13b", "hardware=a800", "data.seq_len=2048", batch__global="96")
    assert {plan.batch.global_ for plan in found} == {96}
    assert any(plan.dims.pp > 1 for plan in found)
    assert any(plan.batch.accumulation > 1 and plan.dims.pp == 1 for plan in found)


def test_a_global_batch_that_never_comes_out_even_is_said() -> None:
    with pytest.raises(ConfigError, match="no whole number of passes makes a step of 3 samples"):
        options_of("model=13b", "hardware=a800", "engine=deepspeed", batch__global="3")


def test_what_is_not_predicted_says_why() -> None:
    with pytest.raises(ConfigError, match=r"nothing to choose from: without hardware\.memory_bandwidth_bytes_per_s"):
        options_of(*CARD, "hardware.memory_bandwidth_bytes_per_s=null")


def test_70b_on_64_cards_takes_few_plans() -> None:
    choice = open_plans_of("model=70b", "hardware=h100", "hardware.nodes=8", "data.seq_len=4096")
    asked: list[Mapping[str, str]] = []

    def counting(plan_with: Callable) -> Callable:
        def plan(words: Mapping[str, str]):
            asked.append(words)
            return plan_with(words)

        return plan

    found = list(options(counting(choice.plan_with), choice.fixed | {"batch.global": "1024"}))
    # A plan takes 3 ms here, and the answer is to take less than 5 s.
    assert len({tuple(sorted(words.items())) for words in asked}) < 1500
    in_bf16 = [plan for plan in found if not plan.config.precision.linears]
    best = max(
        (plan for plan in in_bf16 if fit_of(plan, plan.batch.micro).verdict == "yes"), key=lambda p: p.predicted.rate
    )
    assert best.dims.tp > 1
    assert best.dims.pp > 1


@pytest.mark.parametrize("task", ["pretrain", "finetune"])
def test_what_changes_the_mathematics_is_told(task) -> None:
    training = get_task(task)
    plain = open_plans_of("model=7b", "hardware=a800", f"task={task}")
    assert training.changes_mathematics(plain.plan_with({"method": "F+R+Z3"})) == []
    changed = plain.plan_with({"precision": "bf16_pure", "optimizer": "adamw8bit"})
    assert training.changes_mathematics(changed) == ["bf16 without fp32 copy", "8-bit moments"]


def test_fp8_is_an_option_where_the_hardware_multiplies_it_and_engine_and_compiler_are_there() -> None:
    words = ("model=1b", "hardware.devices_per_node=1", "data.seq_len=2048")
    changes = get_task("pretrain").changes_mathematics
    found = {card: options_of(*words, f"hardware={card}") for card in ("h100", "l40s", "a800")}
    low = {card: [plan for plan in plans if "fp8 products" in changes(plan)] for card, plans in found.items()}
    assert {plan.config.precision.name for plan in low["h100"]} == {"fp8", "fp8_pure"}
    assert {plan.config.engine.name for plan in low["h100"] + low["l40s"]} == {"torch"}
    assert all(plan.techniques.compilation for plan in low["h100"])
    assert low["l40s"]
    assert not low["a800"]
    assert max(found["h100"], key=lambda plan: plan.predicted.rate) in low["h100"]


def test_fp16_is_an_option_where_the_hardware_has_no_bf16() -> None:
    words = ("model=1b", "data.seq_len=2048", "hardware.devices_per_node=1")
    old, new = options_of(*words, "hardware=v100"), options_of(*words, "hardware=a100")
    by_precision = {name: [p for p in old if p.config.precision.name == name] for name in ("fp32", "fp16")}
    fp32, fp16 = (max(plan.predicted.rate for plan in plans) for plans in by_precision.values())
    assert fp16 > 1.5 * fp32
    assert not any(plan.config.precision.scales_loss for plan in new)
    typed = options_of(*words, "hardware=v100", "precision=fp32")
    assert {plan.config.precision.name for plan in typed} == {"fp32"}


def test_fp8_is_no_option_where_the_precision_is_typed() -> None:
    found = options_of("model=1b", "hardware=h100", "hardware.devices_per_node=1", "precision=bf16_mixed")
    assert {plan.config.precision.name for plan in found} == {"bf16_mixed"}


def test_fp8_takes_the_compiler_that_the_method_leaves_out_or_none() -> None:
    found = options_of("model=1b", "hardware=h100", "hardware.devices_per_node=1", "engine=torch", "method=F")
    low = [plan for plan in found if plan.config.precision.linears]
    assert low
    assert {plan.method for plan in found} == {"F"}
