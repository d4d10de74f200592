"""Real drivers on one sweep at once, with ranks that are quick and need no torch."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from marks import slow
from patience import HANG_S, until

from chaos.surroundings import Surroundings
from llmexp.record.folder import RunFolder, find_runs

METHODS = ("Naive", "F", "R", "Z2", "Z3", "F+R")
Driver = subprocess.Popen[str]
Start = Callable[..., Driver]


@pytest.fixture
def surroundings(tmp_path: Path) -> Surroundings:
    return Surroundings(tmp_path, tmp_path / "outputs")


@pytest.fixture
def start(surroundings: Surroundings) -> Start:
    """Start a driver of one sweep; further words change it."""

    def start(*words: str) -> Driver:
        sweep = [
            f"method={','.join(METHODS)}",
            "model=tiny",
            "hardware=cpu",
            "engine=scripted",
            "measure=smoke",
            "measure.profile=false",
            "tracking=none",
        ]
        command = surroundings.llmexp(*sweep, f"sweep.outputs={surroundings.outputs}", *words)
        return subprocess.Popen(
            command, env=surroundings.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


def attempts(folder: RunFolder) -> int:
    return 1 + len(list((folder.path / "previous").glob("*")))


def until_begun(surroundings: Surroundings, times: int) -> RunFolder:
    """Wait until the ranks of the only run have been started so many times."""

    def begun() -> list[RunFolder]:
        found = find_runs(surroundings.outputs) if surroundings.outputs.exists() else []
        return [folder for folder in found if attempts(folder) == times and folder.repeats()]

    until(begun)
    return begun()[0]


@pytest.mark.parametrize("rerun", [slow("stale"), pytest.param("all", marks=pytest.mark.sweep)])
def test_two_drivers_share_a_sweep_and_both_end_with_the_whole_table(
    start: Start, surroundings: Surroundings, rerun: str
) -> None:
    drivers = [start("measure.steps=40", f"rerun={rerun}") for _ in range(2)]
    said = [driver.communicate(timeout=HANG_S) for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], said
    folders = find_runs(surroundings.outputs)
    assert [(folder.state(), attempts(folder)) for folder in folders] == [("success", 1)] * len(METHODS)
    began = [line for _, err in said for line in err.splitlines() if line.endswith("starting")]
    assert len(began) == len(METHODS)
    assert all(err.count("starting") for _, err in said), "both did some of it"
    for out, _ in said:
        table = out.partition("tokens/s")[2]
        assert all(f" {method} " in table for method in METHODS)


def test_what_a_killed_driver_held_is_done_by_the_one_that_waits_for_it(
    start: Start, surroundings: Surroundings
) -> None:
    first = start("method=Naive", "measure.steps=2000")
    folder = until_begun(surroundings, 1)
    second = start("method=Naive", "measure.steps=2000")
    assert second.stdout
    waiting = next(line for line in second.stdout if "waiting for " in line)
    assert f"process {first.pid} on " in waiting
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert f"{folder.path.name}: again, it was interrupted" in second.stdout.readline()
    until_begun(surroundings, 2)
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=HANG_S)
    assert folder.state() == "killed"
