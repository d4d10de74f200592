"""Plans of a command line with further words are those of the whole command line."""

from __future__ import annotations

import pytest

from llmexp.errors import ConfigError
from tests.open_plans import open_plans_of
from tests.planning import make_plan

WORDS = {"engine": "torch", "precision": "bf16_pure", "method": "F+Z3", "batch.micro": "4", "kernels.liger": "true"}


def test_a_plan_with_words_is_that_of_the_whole_command_line() -> None:
    typed = ("model=7b", "hardware=a800", "optimizer.lr=0.0003")
    whole = make_plan(*typed, *(f"{key}={value}" for key, value in WORDS.items()))
    found = open_plans_of(*typed).plan_with(WORDS)
    assert found.model_dump(exclude={"overrides"}) == whole.model_dump(exclude={"overrides"})
    assert {*found.overrides} == {*whole.overrides}


def test_words_replace_typed_ones() -> None:
    found = open_plans_of("model=7b", "hardware=a800", "batch.micro=2").plan_with({"batch.micro": "4"})
    assert found.batch.micro == 4
    assert [word for word in found.overrides if word.startswith("batch.micro")] == ["batch.micro=4"]


def test_what_cannot_be_combined_has_no_plan() -> None:
    choice = open_plans_of("model=7b", "hardware=a800")
    assert choice.plan_with({"parallelism.tp": "3"}) is None
    assert choice.plan_with({"parallelism.tp": "2", "engine": "megatron"}).dims.tp == 2


def test_keys_that_were_typed_are_fixed() -> None:
    assert open_plans_of("model=7b", "+method=F", "hardware=a800").fixed.items() >= {"method": "F"}.items()


def test_a_command_line_that_cannot_be_says_why() -> None:
    with pytest.raises(ConfigError, match=r"does not divide the 8 devices"):
        _ = open_plans_of("model=7b", "hardware=a800", "engine=megatron", "parallelism.tp=3").typed
