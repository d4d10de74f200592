import json
import os
import shutil
import time
from datetime import UTC, datetime

import pytest

from llmexp.record.concurrent_runs import concurrent_runs
from llmexp.record.folder import RunFolder
from llmexp.record.identity import process_identity

NOW_S = time.time()
WINDOWS = [(NOW_S - 100, NOW_S - 80), (NOW_S - 60, NOW_S - 40)]


@pytest.fixture
def neighbor(tmp_path):
    """A run of the sweep with events, each its status and its seconds before now; `identity` of its driver."""

    def make(name, *events, **identity):
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        for status, before_s in events:
            at = datetime.fromtimestamp(NOW_S - before_s, UTC).isoformat(timespec="milliseconds")
            who = process_identity() | identity if status in ("running", "waiting") else {}
            with folder.events_path.open("a") as file:
                file.write(json.dumps({"at": at, "status": status, **who}) + "\n")
        return folder

    return make


@pytest.fixture
def own(neighbor):
    return neighbor("own", ("running", 120))


@pytest.mark.parametrize(
    ("events", "stood_beside"),
    [
        ([("running", 150), ("success", 10)], True),
        ([("running", 150), ("failed", 95)], True),
        ([("running", 45), ("success", 20)], True),
        ([("running", 50)], True),
        ([("running", 150), ("success", 110)], False),
        ([("running", 79), ("success", 61)], False),
        ([("running", 30)], False),
        ([("skipped", 90)], False),
        ([], False),
        ([("running", 150), ("waiting", 110), ("running", 79), ("waiting", 61), ("success", 60.5)], False),
        ([("running", 150), ("waiting", 110), ("running", 70), ("waiting", 50)], True),
    ],
    ids=[
        "all of it",
        "its end",
        "its beginning",
        "goes on",
        "before",
        "between two windows",
        "after",
        "never started",
        "no run",
        "repeats between two windows",
        "a repeat in one",
    ],
)
def test_a_run_that_lasted_into_a_window_stood_beside(own, neighbor, events, stood_beside):
    neighbor("tiny_R_1", *events)
    assert concurrent_runs(own, WINDOWS) == ["tiny_R_1"] * stood_beside


def test_a_run_on_another_host_did_not(own, neighbor):
    neighbor("elsewhere", ("running", 150), ("success", 10), host="another-host")
    assert concurrent_runs(own, WINDOWS) == []


@pytest.mark.parametrize(("before_s", "found"), [(90, ["killed"]), (110, [])])
def test_a_run_whose_driver_died_lasted_until_its_last_sample_of_the_machine(own, neighbor, before_s, found):
    killed = neighbor("killed", ("running", 150), pid=2**22 + 1)
    killed.system_path.write_text(json.dumps({"at_s": NOW_S - before_s}) + "\n")
    skewed_s = NOW_S + 3600
    os.utime(killed.system_path, (skewed_s, skewed_s))
    assert concurrent_runs(own, WINDOWS) == found


def test_the_time_between_a_killed_driver_and_the_one_that_went_on_is_nobodys(own, neighbor):
    """Its repeats were kept, and with them the events of both drivers."""
    folder = neighbor("resumed", ("running", 150), start_ticks=1, process_started_at_s=1.0)
    later = neighbor("later", ("running", 30), ("waiting", 20))
    with folder.events_path.open("a") as file:
        file.write(later.events_path.read_text())
    shutil.rmtree(later.path)
    assert concurrent_runs(own, WINDOWS) == []


def test_events_that_cannot_be_read_spoil_nothing(own, neighbor):
    neighbor("good", ("running", 150), ("success", 10))
    neighbor("bad").events_path.write_text('{"at": 1}\n')
    assert concurrent_runs(own, WINDOWS) == ["good"]
