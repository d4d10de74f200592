"""What engine=torchft refuses, skips and plans, before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planning import make_plan

from llmexp.errors import ConfigError
from llmexp.registry import get_engine
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.short_run import pilot

FP32 = {"name": "fp32", "parameters": "fp32", "gradients": "fp32", "master": "fp32", "moments": "fp32"}
BF16 = dict.fromkeys(FP32, "bf16") | {"name": "bf16_pure"}
ROUNDED = FP32 | {"qat": "int4", "qat_group_size": 8}
MIXED = BF16 | {"name": "bf16_mixed", "master": "fp32", "moments": "fp32"}


@pytest.fixture
def torchft_plan(tiny_plan: Callable[..., TrainingPlan]) -> Callable[..., TrainingPlan]:
    """Plan two replicas in fp32, 1 step of warm-up and 10 measured ones."""

    def plan(method: str = "Naive", options: dict[str, Any] | None = None, **changes: Any) -> TrainingPlan:
        engine = {"name": "torchft", "launcher": "spawn", "options": options or {}}
        chosen = {"precision": FP32, "parallelism__dp": 2, "measure__warmup_steps": 1, "measure__steps": 10}
        return tiny_plan(method, **{"engine": engine} | chosen | changes)

    return plan


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recovery": "hope"}, "engine.options.recovery"),
        ({"kills": [4]}, "kills"),
        ({"kill_at_steps": 4}, "engine.options.kill_at_steps=4: list numbers of steps, such as [2]"),
        ({"kill_at_steps": [4.5]}, "list numbers of steps"),
        ({"kill_at_steps": [1]}, "step 1 is outside of 2 to 9"),
        ({"kill_at_steps": [4, 10]}, "step 10 is outside of 2 to 9"),
        ({"kill_at_steps": [5, 4]}, "name each step once, in order"),
        ({"checkpoint_every_steps": 0}, "engine.options.checkpoint_every_steps=0"),
        ({"recovery": "restart", "kill_at_steps": [4]}, "set engine.options.checkpoint_every_steps"),
        ({"heartbeat_timeout_s": -1}, "engine.options.heartbeat_timeout_s=-1: set seconds above 0"),
    ],
)
def test_an_option_that_means_nothing_is_refused_in_a_line(
    torchft_plan: Callable[..., TrainingPlan], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        torchft_plan(options=options)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_replica_alone_is_refused(torchft_plan: Callable[..., TrainingPlan]) -> None:
    with pytest.raises(ConfigError, match=r"parallelism\.dp=1"):
        torchft_plan(parallelism__dp=1)


@pytest.mark.parametrize(
    ("method", "changes", "reason"),
    [
        ("F+R", {}, None),
        ("RS", {"precision": BF16}, None),
        ("Z3", {}, "engine=torchft: each replica holds all of the training state as it is: leave Z1, Z2 and Z3 out"),
        ("Q", {}, "engine=torchft: each replica holds all of the training state as it is: leave Q and QL out"),
        ("C", {}, "engine=torchft: each replica holds all of the training state as it is: leave C out"),
        ("Naive", {"precision": MIXED}, "engine=torchft: precision=bf16_mixed has several dtypes of state"),
        ("Naive", {"precision": ROUNDED}, "engine=torchft: precision.qat has not been tried with it: leave that out"),
        ("Naive", {"optimizer__clip_norm": 1.0}, "optimizer.clip_norm"),
        ("Naive", {"measure__duration_s": 3.0}, "engine=torchft: steps end its window"),
    ],
)
def test_what_replicas_lack_is_a_skip_with_the_reason(
    torchft_plan: Callable[..., TrainingPlan], method: str, changes: dict[str, Any], reason: str | None
) -> None:
    skip = torchft_plan(method, **changes).skip
    assert skip is None if reason is None else reason in str(skip)


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [("muon", "optimizer=muon is two"), ("lomo", "optimizer=lomo updates in backward"), ("adafactor", None)],
)
def test_an_optimizer_without_a_state_to_hand_over_is_a_skip(optimizer: str, reason: str | None) -> None:
    words = ("model=tiny", "hardware=cpu", "parallelism.dp=2", "precision=fp32", "measure.profile=false")
    skip = make_plan("engine=torchft", *words, f"optimizer={optimizer}").skip
    assert skip is None if reason is None else f"engine=torchft: {reason}" in str(skip)


def test_recoveries_and_deaths_are_other_runs(torchft_plan: Callable[..., TrainingPlan]) -> None:
    chosen: list[dict[str, Any]] = [{}, {"kill_at_steps": [4]}, {"recovery": "restart", "checkpoint_every_steps": 2}]
    assert len({torchft_plan(options=options).id for options in chosen}) == 3


@pytest.mark.parametrize(("recovery", "needs"), [("heal", True), ("restart", False)])
def test_only_healing_needs_torchft(torchft_plan: Callable[..., TrainingPlan], recovery: str, needs: bool) -> None:
    config = torchft_plan(options={"recovery": recovery}).config
    assert ("torchft" in get_engine("pretrain", "torchft").needed_modules(config)) is needs


def test_checkpoints_go_with_the_run_that_wrote_them(torchft_plan: Callable[..., TrainingPlan], tmp_path: Path) -> None:
    repeats = [tmp_path / "repeat.0", tmp_path / "previous" / "1" / "repeat.0"]
    for repeat in repeats:
        repeat.mkdir(parents=True)
        for name in ("samples.0.jsonl", "checkpoint.pt", "checkpoint.part"):
            (repeat / name).write_text("")
    get_engine("pretrain", "torchft").clean_up(torchft_plan(), tmp_path)
    assert [path.name for repeat in repeats for path in repeat.iterdir()] == ["samples.0.jsonl"] * 2


def test_a_pilot_of_few_steps_kills_nobody(torchft_plan: Callable[..., TrainingPlan]) -> None:
    short = pilot(torchft_plan(options={"kill_at_steps": [4, 8], "checkpoint_every_steps": 2}))
    assert short
    assert short.engine_config["kill_at_steps"] == []
    assert short.engine_config["checkpoint_every_steps"] == 2
