"""Whether processes still work is told from what they compute, however long that takes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from llmexp.machine.standstill import StandstillWatch

# For each line that it gets it computes for two tenths of a CPU second.
WORKER = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    end_s = time.process_time() + 0.2
    while time.process_time() < end_s: pass
    print("done", flush=True)
"""
BELOW = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(params=[[WORKER], [BELOW, WORKER]], ids=["itself", "below it"])
def worker(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", *request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.communicate()


def work(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin
    assert worker.stdout
    print(file=worker.stdin, flush=True)
    worker.stdout.readline()


def test_a_process_that_works_slowly_does_not_stand_still(
    worker: subprocess.Popen[str],
) -> None:
    clock = Clock()
    watch = StandstillWatch(worker.pid, idle_s=5, clock=clock)
    watch.stands_still()
    for _ in range(3):
        clock.now_s += 6
        work(worker)
        assert not watch.stands_still(), "0.2 CPU seconds in 6 are work, on a busy machine"
    clock.now_s += 4
    assert not watch.stands_still()
    clock.now_s += 2
    assert watch.stands_still()


def test_what_looks_now_and_then_stands_still(worker: subprocess.Popen[str]) -> None:
    clock = Clock()
    watch = StandstillWatch(worker.pid, idle_s=10, clock=clock)
    watch.stands_still()
    clock.now_s += 1000
    work(worker)
    assert watch.stands_still(), "0.2 CPU seconds in 1000"


def test_one_that_has_ended_is_not_waited_for(worker: subprocess.Popen[str]) -> None:
    clock = Clock()
    watch = StandstillWatch(worker.pid, idle_s=10, clock=clock)
    worker.communicate()
    watch.stands_still()
    clock.now_s += 11
    assert watch.stands_still()


def test_the_own_work_does_not_count_where_only_processes_below_are_waited_for() -> None:
    clock = Clock()
    watch = StandstillWatch(os.getpid(), 10, only_below=True, clock=clock)
    own = StandstillWatch(os.getpid(), 10, clock=clock)
    assert not watch.stands_still()
    assert not own.stands_still()
    clock.now_s += 11
    end_s = time.process_time() + 0.4
    while time.process_time() < end_s:
        pass
    assert watch.stands_still()
    assert not own.stands_still()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody counts how long a process waits for a core")
def test_one_that_gets_no_core_from_others_does_not_stand_still() -> None:
    """Beside a process on its only core, one of the lowest class computes less than a hundredth of it."""
    core = min(os.sched_getaffinity(0))
    spin = f"import os, sys; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"
    lowest = f"import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n{spin}"
    with (
        subprocess.Popen([sys.executable, "-c", lowest], stdout=subprocess.PIPE) as starved,
        subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as other,
    ):
        for process in (starved, other):
            assert process.stdout
            process.stdout.readline()
        watch = StandstillWatch(starved.pid, idle_s=1.0)
        watch.stands_still()
        before_s, began_s = watch.computed_s(), time.monotonic()
        looks = [watch.stands_still() for _ in range(60) if not time.sleep(0.05)]
        computed_share = (watch.computed_s() - before_s) / (time.monotonic() - began_s)
        for process in (starved, other):
            process.kill()
    assert computed_share < 0.02
    assert not any(looks)
