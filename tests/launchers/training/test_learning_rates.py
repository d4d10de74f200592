"""The learning rates of steps, by transformers' schedulers."""

from __future__ import annotations

from typing import Any

import pytest
from planning import make_plan
from torch import nn, optim

from llmexp.launchers.training.learning_rates import StepUpdates, shares, updates_of


def rates(steps: int, *words: str) -> list[float]:
    return shares(make_plan(*words).config.optimizer, steps)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["schedule=constant", "warmup_steps=3"], [1 / 4, 2 / 4, 3 / 4, 1, 1, 1]),
        (["schedule=linear"], [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        (["schedule=linear", "warmup_steps=2"], [1 / 3, 2 / 3, 1, 3 / 4, 2 / 4, 1 / 4]),
        (["schedule=linear", "final_lr_share=0.4"], [1, 0.9, 0.8, 0.7, 0.6, 0.5]),
        (["schedule=wsd", "warmup_steps=1", "decay_steps=3"], [1 / 2, 1, 1, 1, 2 / 3, 1 / 3]),
        (["schedule=wsd"], [1, 1, 1, 1, 1, 1]),
    ],
)
def test_rates_are_those_of_the_schedule(words: list[str], expected: list[float]) -> None:
    assert rates(6, *(f"optimizer.{word}" for word in words)) == pytest.approx(expected)


def test_a_cosine_falls_along_half_a_wave_to_its_share() -> None:
    found = rates(8, "optimizer.schedule=cosine", "optimizer.final_lr_share=0.2")
    assert (found[0], found[4]) == pytest.approx((1, 0.6))
    assert found == sorted(found, reverse=True)
    assert 0.2 < found[-1] < 0.25


class Engine:
    def __init__(self) -> None:
        self.optimizer = optim.SGD([{"params": [nn.Parameter()]}, {"params": [nn.Parameter()], "lr": 0.2}], lr=0.1)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    def norm_of_step(self) -> float:
        return 3.0


def test_each_group_keeps_its_share_and_the_last_rate_stays() -> None:
    plan = make_plan("optimizer.schedule=linear", "optimizer.total_steps=2")
    updates, seen = StepUpdates(plan, Engine()), []
    for _ in range(3):
        updates.begin()
        seen.append((updates.rate(), updates._engine.parameter_groups()[1]["lr"]))
    assert seen == [pytest.approx(both) for both in ((0.1, 0.2), (0.05, 0.1), (0.05, 0.1))]
    assert updates.gradient_norm() == 3.0


def test_rates_that_do_not_change_are_left_alone() -> None:
    engine = Engine()
    updates = StepUpdates(make_plan(), engine)
    engine.parameter_groups()[0]["lr"] = 7.0
    updates.begin()
    assert updates.rate() == 7.0


def test_an_engine_that_tells_nothing_is_asked_nothing() -> None:
    assert updates_of(make_plan(), object()) is None  # type: ignore[arg-type]
