"""Drivers that cannot be seen from here are alive as long as they give a sign of life.

This holds whatever their host and its clock are called.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import until

from llmexp.record import heartbeat
from llmexp.record.folder import RunFolder
from llmexp.record.heartbeat import EVERY_S, SILENT_S, UNASKED_S
from llmexp.record.identity import process_identity
from llmexp.record.lock import LockHeldError, acquire, holder_file, lost_to, who_holds

ELSEWHERE: dict[str, Any] = {"boot_id": "another's", "host": "another"}
SAME_NAME: dict[str, Any] = {"boot_id": "another's", "host": socket.gethostname()}


@pytest.fixture(autouse=True)
def _asked_anew() -> None:
    heartbeat._ahead_s.clear()


@pytest.fixture
def left_by(tmp_path: Path) -> Callable[..., RunFolder]:
    """A run at which a driver is, or was, of another identity; it gave its last sign of life some seconds ago."""

    def make(identity: dict[str, Any], silent_s: float = 0.0, without: str = "") -> RunFolder:
        folder = RunFolder(tmp_path / "run")
        with acquire(folder.drivers):
            holder = own_holder(folder)
            told = {name: value for name, value in json.loads(holder.read_text()).items() if name != without}
        holder.write_text(json.dumps(told | identity))
        age(holder, silent_s)
        folder.event("running", **process_identity() | identity)
        return folder

    return make


def own_holder(folder: RunFolder) -> Path:
    holder = holder_file(folder.drivers)
    assert holder
    return holder


def age(holder: Path, seconds: float) -> None:
    then_s = time.time() - seconds
    os.utime(holder, (then_s, then_s))


def can_be_taken(folder: RunFolder) -> bool:
    try:
        with acquire(folder.drivers):
            return True
    except LockHeldError:
        return False


@pytest.mark.parametrize(
    "identity", [ELSEWHERE, SAME_NAME], ids=["another host", "another machine of this host's name"]
)
@pytest.mark.parametrize(
    ("silent_s", "state"), [(0.0, "running"), (SILENT_S - 60, "running"), (SILENT_S + 60, "killed")]
)
def test_a_driver_that_cannot_be_seen_lives_as_long_as_it_gives_signs_of_life(
    identity, silent_s, state, left_by
) -> None:
    folder = left_by(identity, silent_s)
    assert folder.state() == state
    assert can_be_taken(folder) is (state == "killed")


def test_a_driver_that_can_be_seen_is_judged_by_the_kernel_as_one_that_is_stopped_gives_no_sign(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with acquire(folder.drivers):
        folder.event("running", **process_identity())
        age(own_holder(folder), 10 * SILENT_S)
        assert folder.state() == "running"
        assert not can_be_taken(folder)


@pytest.mark.parametrize(("silent_s", "state"), [(SILENT_S - 60, "running"), (SILENT_S + 60, "killed")])
def test_one_in_a_container_is_judged_so_where_files_cannot_be_locked(
    silent_s, state, left_by, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    folder = left_by({"pid_namespace": 1}, silent_s)
    assert folder.state() == "killed"  # nobody keeps the lock
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert folder.state() == state


@pytest.mark.parametrize("own_clock_off_s", [-(10**8), 10**8])
def test_the_clock_of_this_host_does_not_matter(own_clock_off_s, left_by, monkeypatch: pytest.MonkeyPatch) -> None:
    off_s = time.time() + own_clock_off_s
    folder = left_by(ELSEWHERE, SILENT_S - 60)
    monkeypatch.setattr(time, "time", lambda: off_s)
    assert folder.state() == "running"
    age(own_holder(folder), own_clock_off_s + SILENT_S + 60)
    assert folder.state() == "killed"


@pytest.mark.parametrize(("silent_s", "state"), [(SILENT_S + 60, "running"), (UNASKED_S + 60, "killed")])
def test_where_nothing_can_be_written_the_own_clock_needs_a_wide_margin(
    silent_s, state, left_by, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError

    folder = left_by(ELSEWHERE, silent_s)
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert folder.state() == state


def test_who_looks_leaves_nothing_behind(left_by) -> None:
    folder = left_by(ELSEWHERE)
    before = sorted(folder.path.rglob("*"))
    assert folder.state() == "running"
    assert sorted(folder.path.rglob("*")) == before


@pytest.mark.parametrize(("identity", "state"), [(ELSEWHERE, "running"), (SAME_NAME, "killed")])
def test_one_of_an_earlier_version_gave_no_signs_and_is_judged_as_it_was(identity, state, left_by) -> None:
    assert left_by(identity, 10 * SILENT_S, without="heartbeat_s").state() == state


def test_the_way_out_is_named(left_by) -> None:
    folder = left_by(ELSEWHERE)
    said = f"; if you are sure that it is dead: rm -r '{folder.drivers}'; "
    said += "after 10 min without a sign of life it counts as dead"
    assert str(who_holds(folder.drivers)).endswith(said)


def test_the_signs_come_by_themselves_until_the_lock_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)
    folder = RunFolder(tmp_path / "run")
    with acquire(folder.drivers):
        holder = own_holder(folder)
        age(holder, 10 * SILENT_S)
        until(lambda: time.time() - holder.stat().st_mtime <= SILENT_S)
    age(holder, 10 * SILENT_S)
    aged_s = holder.stat().st_mtime
    assert [thread.name for thread in heartbeat.threading.enumerate() if thread.name == "heartbeat"] == []
    assert holder.stat().st_mtime == aged_s


def test_signs_are_rare_enough_to_disturb_nothing_and_frequent_enough_for_many_to_be_lost() -> None:
    assert 5 <= EVERY_S <= SILENT_S / 20


@contextmanager
def taken_over(folder: RunFolder) -> Iterator[Path]:
    """Hold the folder, and let a driver elsewhere have found this one silent and be at it now."""
    with acquire(folder.drivers):
        other = folder.drivers / str(int(own_holder(folder).parent.name) + 1)
        other.mkdir()
        (other / ".holder").write_text(json.dumps({"at": "now", **process_identity(), **ELSEWHERE, "pid": 7}))
        yield other


def test_a_holder_learns_that_another_took_its_lock(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert lost_to(folder.drivers) is None
    with acquire(folder.drivers):
        assert lost_to(folder.drivers) is None
        assert lost_to(folder.drivers, asking=True) is None
    with taken_over(folder) as other:
        assert lost_to(folder.drivers) == "process 7 on another"
        (other / ".holder").write_text("")
        assert lost_to(folder.drivers) == "a process that has ended by now"


def test_one_whose_lock_somebody_removed_does_not_release_the_next_ones(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with acquire(folder.drivers):
        own_holder(folder).unlink()
        assert lost_to(folder.drivers) is None
        own_holder(folder).write_text(text := json.dumps({"at": "now", **process_identity(), "pid": 7}))
        assert lost_to(folder.drivers, asking=True) == f"process 7 on {socket.gethostname()}"
    assert own_holder(folder).read_text() == text
