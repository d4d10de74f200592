"""Memory comes to its end under a run.

The rules are tested on made-up readings, and on real processes in a real control group where one can be made.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from patience import HANG_S

from llmexp.launch import host_memory
from llmexp.launch.host_memory import HostMemory
from llmexp.machine import memory
from llmexp.record.result import RunStatus

MIB, GIB = 2**20, 2**30
LIMIT_BYTES = 512 * MIB
# Two homes of the memory controller: version 1, and version 2 where the root group hands it down.
HOMES = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
GROWING = "import sys, time\nheld = []\nwhile True: held.append(bytearray(8 * 2**20)); time.sleep(float(sys.argv[1]))"


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    said = {"left": 20 * GIB, "held": 0}
    monkeypatch.setattr(host_memory, "host_memory_bytes", lambda: 24 * GIB)
    monkeypatch.setattr(host_memory, "host_memory_left_bytes", lambda: said["left"])
    monkeypatch.setattr(host_memory, "held_bytes", lambda process: said["held"])
    monkeypatch.setattr(memory, "PRESSURE", Path("/nowhere"))
    monkeypatch.setattr(memory, "COUNTERS", Path("/nowhere"))
    return said


def one_process() -> list[psutil.Process]:
    return [psutil.Process()]


def test_two_low_readings_in_a_row_end_a_run_that_holds_most_of_it(readings: dict[str, int]) -> None:
    watched = HostMemory()
    for left in (20 * GIB, 300 * MIB, 20 * GIB, 300 * MIB):
        readings["left"] = left
        assert watched.exhausted(one_process) is None
    readings["held"] = 22 * GIB
    ending = watched.exhausted(one_process)
    assert ending is not None
    assert ending.status is RunStatus.OOM
    assert ending.reason == "host memory: 0.3 of 24.0 GiB left, the run's processes hold 22.0 GiB: the limit is 2%"


def test_memory_that_others_hold_is_no_answer_about_the_run(readings: dict[str, int]) -> None:
    watched = HostMemory()
    readings |= {"left": 300 * MIB, "held": GIB}
    watched.exhausted(one_process)
    ending = watched.exhausted(one_process)
    assert ending is not None
    assert ending.status is RunStatus.FAILED
    assert ending.reason.endswith("other processes hold most of it")


@pytest.mark.parametrize(("full", "ends"), [("0.00", False), ("19.90", False), ("35.50", True)])
def test_a_machine_that_waits_for_memory_is_thrashing(
    readings: dict[str, int], monkeypatch, tmp_path: Path, full: str, ends: bool
) -> None:
    pressure = tmp_path / "memory"
    pressure.write_text(
        f"some avg10=60.00 avg60=1.00 avg300=0.00 total=9\nfull avg10={full} avg60=0.00 avg300=0.00 total=9\n"
    )
    monkeypatch.setattr(memory, "PRESSURE", pressure)
    ending = HostMemory().exhausted(one_process)
    assert (ending is not None) is ends
    assert not ends or "waited for it in 36% of the last 10 s" in str(ending)


@pytest.mark.parametrize(("pages_in", "ends"), [(0, False), (100_000, True)])
def test_swapping_both_ways_for_ten_seconds_is_thrashing_where_the_kernel_does_not_say_more(
    readings: dict[str, int], monkeypatch, tmp_path: Path, pages_in: int, ends: bool
) -> None:
    counters, now_s = tmp_path / "vmstat", [0.0]
    monkeypatch.setattr(memory, "COUNTERS", counters)
    monkeypatch.setattr(host_memory.time, "monotonic", lambda: now_s[0])
    watched = HostMemory()
    for second in range(11):
        now_s[0] = float(second)
        counters.write_text(f"nr_free_pages 1\npswpin {pages_in * second}\npswpout {100_000 * second}\n")
        ending = watched.exhausted(one_process)
        assert second == 10 or ending is None
    assert (ending is not None) is ends
    assert not ends or "410 MB/s are swapped out and in again" in str(ending)


@pytest.fixture
def group() -> Iterator[Path]:
    """A new control group of LIMIT_BYTES without swap, with the driver that joins it and all that this starts."""
    home = next((home for home in HOMES if _has_controller(home) and os.access(home, os.W_OK)), None)
    if home is None:
        pytest.skip("no control group can be made here: that takes root and a memory controller")
    made = home / f"llmexp-{uuid.uuid4().hex}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    limit = next(path for name in ("memory.max", "memory.limit_in_bytes") if (path := made / name).exists())
    limit.write_text(str(LIMIT_BYTES))
    for name, value in (("memory.swap.max", "0"), ("memory.swappiness", "0")):
        if (made / name).exists():
            (made / name).write_text(value)
    yield made
    made.rmdir()


def _has_controller(home: Path) -> bool:
    if (home / "memory.limit_in_bytes").exists():
        return True
    try:
        return "memory" in (home / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("every_s", "least_left", "reason"),
    [
        ("0.1", "0.3", "GiB left, the run's processes hold"),
        ("0", "0", "the launcher was killed by SIGKILL by the kernel because host memory ran out"),
    ],
    ids=["stopped in time", "killed by the kernel"],
)
def test_ranks_that_take_the_last_memory_of_their_group_are_out_of_memory(
    make_plan,
    folder,
    start_driver,
    group: Path,
    processes: Callable[[], list[psutil.Process]],
    monkeypatch,
    every_s: str,
    least_left: str,
    reason: str,
) -> None:
    monkeypatch.setenv("LLMEXP_TEST_JOINS", str(group / "cgroup.procs"))
    monkeypatch.setenv("LLMEXP_TEST_LEAST_LEFT_SHARE", least_left)
    plan = make_plan(argv=[sys.executable, "-c", GROWING, every_s])
    assert start_driver(plan).wait(timeout=HANG_S) == 0
    result = folder.result()
    assert result is not None
    assert result.status is RunStatus.OOM, result.reason
    assert reason in result.reason
    assert processes() == []
