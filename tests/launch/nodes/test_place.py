from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.launch.nodes.place import PORT, Place, place_of
from llmexp.training.plan.training_plan import TrainingPlan

SCONTROL = '#!/bin/sh\n[ "$*" = "show hostnames n[3-4]" ] && printf "n3\\nn4\\n"\n'


@pytest.fixture
def config(tiny_plan: Callable[..., TrainingPlan]):
    return lambda nodes=2, **node: tiny_plan(hardware__nodes=nodes, parallelism__dp=6, node=node).config


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SLURM sets on the second machine of a job of two."""
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, value in {
        "SLURM_NODEID": "1",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "n[3-4]",
        "SLURM_JOB_ID": "9001",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def _no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_NODEID", raising=False)
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)


def test_one_machine_needs_no_place(config) -> None:
    assert place_of(config(nodes=1)) == Place(0, 1)


def test_another_machine_than_the_first_of_one_is_refused(config) -> None:
    with pytest.raises(
        ConfigError,
        match=r"node.rank=1: hardware.nodes=1, so the only machine is 0: set hardware.nodes",
    ):
        place_of(config(nodes=1, rank=1))


def test_a_place_is_what_the_configuration_says(config) -> None:
    assert place_of(config(rank=1, address="host0", port=4000)) == Place(1, 2, "host0", 4000)
    assert place_of(config(rank=0, address="host0")).port == PORT


@pytest.mark.usefixtures("slurm")
def test_in_a_slurm_job_it_is_known(config) -> None:
    assert place_of(config()) == Place(1, 2, "n3", 20001)
    assert place_of(config(address="10.0.0.3", port=4000)) == Place(1, 2, "10.0.0.3", 4000)


@pytest.mark.usefixtures("slurm")
def test_a_job_of_another_number_of_machines_says_nothing(config) -> None:
    with pytest.raises(ConfigError, match=r"hardware.nodes=3: start it on each of them"):
        place_of(config(nodes=3))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ({}, "hardware.nodes=2: start it on each of them, with node.rank=0"),
        ({"rank": 0}, "node.rank=0: node.address=<host name or address of machine 0> is missing"),
        ({"rank": 2, "address": "host0"}, "node.rank=2: hardware.nodes=2 are numbered 0 to 1"),
    ],
)
def test_what_is_not_known_is_asked_for(config, node: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        place_of(config(**node))
