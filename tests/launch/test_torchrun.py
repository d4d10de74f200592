"""The real launcher: what it does when a rank or the driver goes while the other ranks hang in a collective."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from llmexp.launch.run import run_one
from llmexp.record.result import RunStatus

pytestmark = pytest.mark.ranks
SCRIPT = Path(__file__).parent / "scripts" / "gloo_rank.py"


@pytest.fixture
def make_torchrun_plan(make_plan):
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(SCRIPT), "{folder}"]
    return lambda behaviour: make_plan(argv=[*start, behaviour])


@pytest.mark.parametrize(
    ("behaviour", "status", "reason"),
    [
        ("killed", RunStatus.KILLED, "rank 1 was killed by SIGKILL"),
        ("out_of_memory", RunStatus.OOM, "rank 1: MemoryError: no more"),
    ],
)
def test_one_ranks_end_ends_the_run_within_seconds(make_torchrun_plan, folder, behaviour, status, reason):
    result = run_one(make_torchrun_plan(behaviour), folder)
    assert (result.status, result.reason) == (status, reason)
    met = (folder.repeat(0) / "samples.1.jsonl").stat().st_mtime
    assert time.time() - met < 12


def test_killed_driver_takes_torchrun_and_its_ranks_along(make_torchrun_plan, folder, start_driver, until, processes):
    driver = start_driver(make_torchrun_plan("hang"))
    until((folder.repeat(0) / "samples.1.jsonl").exists, within_s=60)
    assert len(processes()) >= 5
    driver.kill()
    driver.wait()
    until(lambda: not processes(), within_s=10)
    assert folder.state() == "killed"
