"""The real launcher: what it does when a rank or the driver goes while the other ranks hang in a collective."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from llmexp.launch.run import run_one
from llmexp.record.result import RunStatus

pytestmark = pytest.mark.ranks
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def make_torchrun_plan(make_plan):
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    return lambda *words, **limits: make_plan(argv=[*start, str(SCRIPTS / words[0]), "{folder}", *words[1:]], **limits)


@pytest.mark.parametrize(
    ("behaviour", "status", "reason"),
    [
        ("killed", RunStatus.KILLED, "rank 1 was killed by SIGKILL"),
        ("out_of_memory", RunStatus.OOM, "rank 1: MemoryError: no more"),
    ],
)
def test_one_ranks_end_ends_the_run_within_seconds(make_torchrun_plan, folder, behaviour, status, reason):
    result = run_one(make_torchrun_plan("gloo_rank.py", behaviour), folder)
    assert (result.status, result.reason) == (status, reason)
    assert status is not RunStatus.OOM or result.failure.allocator == {"allocated_bytes": 7}
    met = (folder.repeat(0) / "samples.1.jsonl").stat().st_mtime
    assert time.time() - met < 12


def test_killed_driver_takes_torchrun_and_its_ranks_along(make_torchrun_plan, folder, start_driver, until, processes):
    driver = start_driver(make_torchrun_plan("gloo_rank.py", "hang"))
    until((folder.repeat(0) / "samples.1.jsonl").exists, within_s=60)
    assert len(processes()) >= 5
    driver.kill()
    driver.wait()
    until(lambda: not processes(), within_s=10)
    assert folder.state() == "killed"


@pytest.mark.usefixtures("signs_of_life")
def test_a_hang_in_a_collective_is_a_timeout_with_the_stack_of_each_rank_in_its_log(make_torchrun_plan, folder, processes):
    result = run_one(make_torchrun_plan("stuck_rank.py", no_progress_timeout_s=10.0), folder)
    assert result.status is RunStatus.TIMEOUT, result.reason
    assert "measure.no_progress_timeout_s=10" in result.reason
    stacks = [(folder.repeat(0) / f"log.{rank}.txt").read_text() for rank in (0, 1)]
    assert "in barrier" in stacks[0]
    assert "in stay_away" in stacks[1]
    assert processes() == []
