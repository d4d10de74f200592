from __future__ import annotations

import pytest

from llmexp.errors import ConfigError
from llmexp.slurm.options import SlurmOptions, read_options
from llmexp.slurm.submit import asked_of


def test_a_run_asks_for_what_its_ranks_need(tiny_plan):
    asked = asked_of(tiny_plan(hardware__name="h100"), SlurmOptions(partition="gpu"))
    assert (asked["partition"], asked["gpus_per_node"], asked["cpus_per_task"]) == ("gpu", 8, 8)
    assert "account" not in asked


def test_ranks_on_cpu_ask_for_no_gpu(tiny_plan):
    asked = asked_of(tiny_plan(measure__threads_per_rank=4), SlurmOptions())
    assert "gpus_per_node" not in asked
    assert asked["cpus_per_task"] == 8


@pytest.mark.parametrize(("given", "asked"), [("a100", "a100:8"), ("a100:4", "a100:4"), (2, 2), (0, None)])
def test_gpus_of_a_type_or_none(given, asked, tiny_plan):
    assert asked_of(tiny_plan(hardware__name="h100"), SlurmOptions(gpus_per_node=given)).get("gpus_per_node") == asked


def test_the_time_is_the_runs_own_limit_and_a_little_more(tiny_plan):
    plan = tiny_plan(measure__timeout_s=600.0)
    assert asked_of(plan, SlurmOptions())["additional_parameters"]["time"] == 15
    assert asked_of(plan, SlurmOptions(time="1-00:00:00"))["additional_parameters"]["time"] == "1-00:00:00"


def test_further_options_win(tiny_plan):
    extra = asked_of(tiny_plan(), SlurmOptions(requeue=False, options={"time": 3, "nice": 7}))["additional_parameters"]
    assert extra == {"time": 3, "nice": 7, "no-requeue": True}


def test_a_name_of_ones_own_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"^hydra\.launcher\.options\.job-name=mine: llmexp names its jobs itself, to know them again$",
    ):
        read_options({"options": {"job-name": "mine"}})


def test_a_wrong_option_is_named_with_its_value():
    with pytest.raises(ConfigError, match=r"^hydra\.launcher\.poll_s=-1\.0: must be a number above 0$"):
        read_options({"poll_s": -1.0})
