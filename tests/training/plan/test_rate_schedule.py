"""The steps of a learning-rate schedule in a plan."""

from __future__ import annotations

import pytest
from planning import make_plan

from llmexp.errors import ConfigError
from llmexp.training.plan.rate_schedule import scheduled_steps
from llmexp.training.report.trained import asked_training
from llmexp.training.short_run import pilot

RUN = ("measure.warmup_steps=5", "measure.steps=15")


def test_a_schedule_spans_the_run_or_what_is_said() -> None:
    assert scheduled_steps(make_plan(*RUN).config) == 20
    assert scheduled_steps(make_plan(*RUN, "optimizer.total_steps=100").config) == 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optimizer.schedule=linear", "optimizer.warmup_steps=20"], "more than the 20 steps of the run"),
        (["optimizer.warmup_steps=21"], "optimizer.warmup_steps=21"),
        (["optimizer.schedule=wsd", "optimizer.warmup_steps=8", "optimizer.decay_steps=13"], "13 steps in which"),
        (["optimizer.schedule=cosine", "optimizer.warmup_steps=9", "optimizer.total_steps=9"], "total_steps=9"),
    ],
)
def test_parts_that_do_not_fit_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_plan(*RUN, *words)


@pytest.mark.parametrize(
    "words", [["optimizer.warmup_steps=20"], ["optimizer.schedule=wsd", "optimizer.warmup_steps=18"]]
)
def test_parts_that_fit_are_planned(words: list[str]) -> None:
    assert make_plan(*RUN, *words).skip is None


def test_a_pilot_takes_the_first_rates_of_the_whole_run() -> None:
    short = pilot(make_plan(*RUN, "optimizer.schedule=cosine", "optimizer.warmup_steps=9"))
    assert short is not None
    assert scheduled_steps(short.config) == 20


def test_runs_of_other_lengths_with_a_schedule_were_not_asked_for_the_same() -> None:
    words = [(f"measure.steps={steps}", "measure.warmup_steps=5") for steps in (15, 25)]
    plain = [asked_training(make_plan(*each)) for each in words]
    falling = [asked_training(make_plan(*each, "optimizer.schedule=linear")) for each in words]
    assert plain[0] == plain[1]
    assert falling[0] != falling[1]
