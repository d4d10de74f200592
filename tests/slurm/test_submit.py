from __future__ import annotations

import os

import pytest
from planning import make_plan

from llmexp.errors import ConfigError
from llmexp.record.digits import GIB
from llmexp.slurm.options import SlurmOptions, read_options
from llmexp.slurm.queue import cores_a_gpu
from llmexp.slurm.submit import asked_of


def test_a_run_asks_for_what_its_ranks_need(tiny_plan):
    asked = asked_of(tiny_plan(hardware__name="h100"), SlurmOptions(partition="gpu"))
    assert (asked["partition"], asked["gpus_per_node"], asked["cpus_per_task"]) == ("gpu", 8, 64)
    assert "account" not in asked


@pytest.mark.parametrize(("method", "cores"), [("F", 8), ("Z2+O", 16), ("C", 16)])
def test_a_rank_on_a_gpu_has_the_cores_that_feed_it_and_those_that_update_or_compile(method, cores, tiny_plan):
    asked = asked_of(tiny_plan(method, hardware__name="h100"), SlurmOptions())
    assert asked["cpus_per_task"] == 8 * cores


@pytest.mark.parametrize(
    ("shares", "method", "cores"),
    [([14], "F", 14), ([6], "F", 6), ([4, 12, 24], "F", 12), ([4, 12, 24], "Z2+O", 24), ([4, 12], "Z2+O", 12)],
)
def test_a_rank_has_its_gpus_share_of_a_node(shares, method, cores, tiny_plan):
    asked = asked_of(tiny_plan(method, hardware__name="h100"), SlurmOptions(), shares)
    assert asked["cpus_per_task"] == 8 * cores
    assert asked_of(tiny_plan(method), SlurmOptions(), shares)["cpus_per_task"] == 2


def test_a_server_asks_for_all_devices_that_it_computes_on():
    plan = make_plan("task=serve", "model=70b", "hardware=h100", "parallelism.tp=4", "parallelism.dp=2")
    asked = asked_of(plan, SlurmOptions(), [14])
    assert (asked["gpus_per_node"], asked["cpus_per_task"]) == (8, 8 * 14)
    assert asked_of(plan, SlurmOptions(gpus_per_node="h100"))["gpus_per_node"] == "h100:8"


@pytest.mark.parametrize(
    ("answer", "shares"),
    [
        ("112 gpu:a100:8(S:0-1)\n64 gpu:4\n48+ gpu:h100_pcie:2,nvme:1\n", [14, 16, 24]),
        ("96 nvme:2,gpu:l40s-48:8(IDX:0-7)\n", [12]),
        ("2 (null)\n", []),
        ("", []),
    ],
)
def test_sinfo_tells_the_cores_a_gpu(answer, shares, tmp_path, monkeypatch):
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\ncat <<'END'\n{answer}END\n")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert cores_a_gpu("gpu") == shares
    monkeypatch.setenv("PATH", "")
    assert cores_a_gpu(None) == []


def test_state_on_the_host_asks_for_its_memory():
    words = ("hardware=h100", "model=7b", "engine=deepspeed", "parallelism.dp=8")
    with_o, without = (make_plan(f"method={method}", *words) for method in ("Z3+O", "Z3"))
    assert "mem" not in asked_of(without, SlurmOptions())
    assert asked_of(with_o, SlurmOptions(mem="0"))["mem"] == "0"
    wanted = int(asked_of(with_o, SlurmOptions())["mem"].removesuffix("G")) * GIB
    assert wanted > 8 * with_o.memory.host


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
