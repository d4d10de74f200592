"""What makes a training fit: each change that is named does, and none smaller is left out."""

from __future__ import annotations

import pytest

from llmexp.training.advice.fitting import fitting
from llmexp.training.plan.fit import fit_of
from tests.planning import make_plan


@pytest.mark.parametrize(
    "words",
    [
        ("model=7b", "hardware=rtx4090", "hardware.devices_per_node=1", "method=F"),
        ("model=7b", "hardware=rtx4090", "method=F+Z3", "batch.micro=64"),
        ("model=13b", "hardware=a800", "method=F", "batch.micro=8"),
        ("task=finetune", "model=13b", "hardware=rtx4090", "method=L+F", "batch.micro=4"),
    ],
)
def test_each_change_makes_it_fit(words: tuple[str, ...]) -> None:
    plan = make_plan(*words)
    assert fit_of(plan, plan.batch.micro).verdict == "no"
    found = fitting(plan)
    assert found
    for change in found:
        kept = [
            code for code in plan.atom_codes if code[0] not in "ZO" or not {*change.split("+")} & {"Z1", "Z2", "Z3"}
        ]
        changed = change if change.startswith("batch.") else f"method={'+'.join([*kept, change])}"
        other = make_plan(*(word for word in words if word.partition("=")[0] != changed.partition("=")[0]), changed)
        assert fit_of(other, other.batch.micro).verdict == "yes", change


def test_a_smaller_batch_is_the_largest_that_fits() -> None:
    plan = make_plan("model=7b", "hardware=rtx4090", "method=F+Z3", "batch.micro=64")
    batch = int(fitting(plan)[-1].removeprefix("batch.micro="))
    assert fit_of(plan, batch + 1).verdict != "yes"


def test_nothing_is_named_where_nothing_helps() -> None:
    assert fitting(make_plan("model=70b", "hardware=rtx4090", "hardware.devices_per_node=1", "method=F")) == []
