from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.trainer import comparable, lines, ratio, trainers
from llmexp.errors import ConfigError

TINY = ("model=tiny", "hardware=cpu", "measure=smoke", "data.seq_len=16")


@pytest.mark.sweep
def test_the_trainer_trains_the_plans_model_over_the_plans_window(tmp_path: Path) -> None:
    plan, pairs = comparable([*TINY, "method=F+R", "batch.micro=2", "--pairs", "2"])
    assert pairs == 2
    assert trainers(plan, tmp_path / "Trainer.0") > 0


@pytest.mark.sweep
def test_the_trainer_is_handed_the_adapter(tmp_path: Path) -> None:
    plan, _ = comparable([*TINY, "data=synthetic", "task=finetune", "method=QL+F"])
    assert trainers(plan, tmp_path / "Trainer.0") > 0
    assert (ratio(plan, {"llmexp": [1.0, 1.0], "Trainer": [1.1, 1.1]}).verdict, plan.trainable_parameters) == (
        "BROKEN",
        591_872,
    )


def test_what_the_words_leave_open_is_equal_on_both_sides() -> None:
    plan, _ = comparable([*TINY, "precision=fp32"])
    assert (plan.method, plan.dims.world_size, plan.config.precision.name, plan.config.data.name) == (
        "F",
        1,
        "fp32",
        "synthetic",
    )


@pytest.mark.parametrize("word", ["method=Z2", "precision=bf16_mixed", "parallelism.dp=2", "--pairs=1"])
def test_what_a_plain_trainer_loop_does_not_do_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="compared are 2 pairs or more"):
        comparable([*TINY, word])


def test_the_ratio_is_of_pairs_with_its_interval() -> None:
    plan, _ = comparable(TINY)
    printed = lines(plan, {"llmexp": [110.0, 220.0], "Trainer": [100.0, 200.0]})
    assert printed[0] == "tiny, F, bf16_pure, batch 1 x 16, 2 pairs"
    assert printed[-2:] == ["llmexp / Trainer   1.100  (1.100 to 1.100)", ">= 0.98 kept; the Trainer is slower"]


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ([97.0, 194.0], ">= 0.98 BROKEN; llmexp is slower"),
        ([99.0, 198.0], ">= 0.98 kept; llmexp is slower"),
        ([90.0, 220.0], ">= 0.98 kept; neither is slower by more than chance"),
    ],
)
def test_the_slower_side_is_named(ours: list[float], said: str) -> None:
    plan, _ = comparable(TINY)
    assert lines(plan, {"llmexp": ours, "Trainer": [100.0, 200.0]})[-1] == said
