"""The words of `llmexp plan` about a training."""

from __future__ import annotations

import pytest

from llmexp.training.describe import describe
from tests.planning import make_plan


def words(plan) -> str:
    return describe(plan)["parameters"]


@pytest.mark.parametrize("method", ["L", "QL", "P"])
def test_what_an_adapter_trains_is_no_part_of_the_models_parameters(tiny_plan, method):
    plan = tiny_plan(method, task={"name": "finetune"})
    told = f"{plan.parameters:,}, all frozen, and {plan.trainable_parameters:,} more of the adapter, which train"
    assert words(plan) == told


def test_why_a_run_is_not_predicted_is_said(tiny_plan):
    assert (
        describe(tiny_plan("F"))["prediction"]
        == "none: this processor is not measured yet: llmexp task=micro hardware=cpu micro.ranks=2"
    )
    known = make_plan("model=7b", "hardware=a800", "method=F")
    assert describe(known)["prediction"] == ""
    lacking = make_plan("model=7b", "hardware=a800", "method=F", "hardware.memory_bandwidth_bytes_per_s=null")
    assert describe(lacking)["prediction"] == "none: without hardware.memory_bandwidth_bytes_per_s"


def test_without_an_adapter_it_is(tiny_plan):
    naive, four_bit = tiny_plan("Naive"), tiny_plan("Q")
    assert words(naive) == f"{naive.parameters:,}, of which {naive.parameters:,} train"
    assert words(four_bit) == f"{naive.parameters:,}, of which {four_bit.trainable_parameters:,} train"
    assert four_bit.trainable_parameters < naive.parameters
