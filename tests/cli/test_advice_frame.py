"""llmexp.advise: a table of pandas with a row an option."""

from __future__ import annotations

import sys

import pytest

import llmexp
from llmexp.errors import ConfigError

CARD = (
    "model=7b",
    "hardware=rtx4090",
    "hardware.devices_per_node=1",
    "task=finetune",
    "engine=torch",
    "optimizer=adamw",
)


def test_a_row_is_an_option_and_the_first_is_the_choice(capfd: pytest.CaptureFixture[str]) -> None:
    options = llmexp.advise(*CARD, "precision=bf16_mixed", tokens=1e9)
    first = options.iloc[0]
    words = first.command.removeprefix("python -m llmexp ")
    assert options.attrs["choice"][0] == f"best by tokens_per_s: llmexp {words}"
    assert (options.attrs["goal"], options.attrs["training_tokens"]) == ("tokens_per_s", 1e9)
    assert list(options["rank"]) == list(range(1, len(options) + 1))
    # What may not fit comes last.
    assert options.tokens_per_s[options.fits == "yes"].is_monotonic_decreasing
    assert (options.low_tokens_per_s < options.tokens_per_s).all()
    assert first.training_time_s == pytest.approx(1e9 / first.tokens_per_s)
    assert (first.engine, first.hardware, first.changes, bool(first.undecided)) == (
        *("torch", "rtx4090", "adapters only"),
        True,
    )
    assert f"batch.micro={first.batch_micro}" in first.command
    assert first.memory_need_bytes <= first.memory_most_bytes <= first.memory_capacity_bytes == 25757220864
    assert options.attrs["nearest"][0]["lacks_bytes"] > 0
    assert capfd.readouterr() == ("", "")


def test_columns_say_what_they_mean_and_in_which_unit() -> None:
    options = llmexp.advise(*CARD, "method=L+F", tokens=1e9)
    meanings = options.attrs["columns"]
    # Keys that the schema does not describe have no description in llmexp.load either.
    assert {*options.columns} - {*meanings} <= {"optimizer", "precision", "hardware_devices_per_node"}
    units = {name: meanings[name]["unit"] for name in ("tokens_per_s", "tokens_per_usd", "memory_need_bytes")}
    assert units == {"tokens_per_s": "tokens/s", "tokens_per_usd": "tokens/USD", "memory_need_bytes": "bytes"}
    assert (meanings["training_time_s"]["unit"], meanings["training_usd"]["unit"]) == ("s", "USD")
    assert meanings["time_shares_update_on_the_host"]["description"].endswith("time: update on the host")


def test_goal_plain_and_global_batch_are_those_of_the_command() -> None:
    least = llmexp.advise(*CARD, "precision=bf16_mixed", goal="fits", plain=True, global_batch=64)
    assert set(least.changes) == {""}
    assert least.memory_need_bytes.is_monotonic_increasing
    assert set(least.batch_micro * least.batch_accumulation) == {64}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"goal": "speed"}, "unknown goal 'speed': choices are tokens_per_s, tokens_per_usd, time, fits"),
        ({"goal": "time"}, "goal=time: say of which training, as in --for tokens=1e9"),
        ({"tokens": -1}, "--for tokens=-1: must be a finite number of tokens above 0"),
        ({"tokens": "many"}, "--for tokens=many: 'many' is not a number"),
        ({"global_batch": 0}, "global_batch=0: must be a whole number of 1 or more"),
        ({"global_batch": "8"}, "global_batch='8': must be a whole number of 1 or more"),
        ({"config_dir": "nowhere"}, "--config-dir nowhere: no such folder"),
    ],
)
def test_what_cannot_be_asked_is_one_line(asked: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as told:
        llmexp.advise(*CARD, "method=L+F", **asked)  # type: ignore[arg-type]
    assert str(told.value).startswith(said)
    assert "\n" not in str(told.value)


def test_without_pandas_it_says_what_to_install_before_it_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr("llmexp.cli.face.advised", lambda *_: pytest.fail("it was planned"))
    with pytest.raises(ConfigError, match=r"^llmexp.advise needs pandas: pip install pandas$"):
        llmexp.advise(*CARD)
