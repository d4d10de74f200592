import os
import subprocess
import sys

import psutil
import pytest

from llmexp.errors import RecordError
from llmexp.launch.attempt import set_aside
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.identity import identity_of, process_identity
from llmexp.record.lock import acquire
from llmexp.record.reading import read_json_lines
from llmexp.record.result import RunResult
from llmexp.record.writing import write_atomically


def _dead_process() -> dict[str, object]:
    """The identity of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identity_of(child.pid)
    child.communicate(b"\n")
    return identity


def test_a_run_without_events_is_planned(make_run):
    assert make_run(status=None).state() == "planned"


def test_a_run_whose_driver_lives_is_running(make_run):
    folder = make_run(status=None)
    folder.event("running", **process_identity())
    assert folder.state() == "running"


def test_a_run_whose_driver_is_gone_was_killed(make_run):
    folder = make_run(status=None)
    folder.event("running", **_dead_process())
    assert folder.state() == "killed"


def test_a_process_that_got_a_dead_driver_s_number_is_not_the_driver(make_run):
    folder = make_run(status=None)
    folder.event(
        "running",
        **(process_identity() | {"process_started_at_s": psutil.Process().create_time() - 3600, "start_ticks": 1}),
    )
    assert folder.state() == "killed"


def test_a_driver_on_another_host_cannot_be_seen_and_counts_as_running(make_run):
    folder = make_run(status=None)
    folder.event("running", **(_dead_process() | {"host": "another-host", "boot_id": "another"}))
    assert folder.state() == "running"


def test_a_result_is_the_last_word(make_run):
    folder = make_run(status="oom")
    folder.event("running", **_dead_process())
    assert folder.state() == "oom"


def test_a_result_that_is_none_is_named(make_run):
    folder = make_run()
    folder.result_path.write_text('{"schema": 1}')
    with pytest.raises(RecordError, match=r"result\.json is not a result"):
        folder.result()


def test_an_event_cut_off_by_a_kill_hides_only_itself(make_run):
    folder = make_run(status=None)
    folder.event("running", **_dead_process())
    with folder.events_path.open("a") as file:
        file.write('{"at": "2026-')
    assert [event["status"] for event in folder.events()] == ["running"]
    assert folder.state() == "killed"


def test_a_record_is_seen_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "result.json"
    write_atomically(path, "old")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert path.read_text() == "old"


def test_runs_are_found_at_above_and_two_levels_above_their_folder(make_run, outputs):
    folders = [make_run("F"), make_run("R", sweep={"name": "other", "outputs": "outputs"})]
    assert [run.path for run in find_runs(outputs)] == [folder.path for folder in folders]
    assert [run.path for run in find_runs(outputs / "main")] == [folders[0].path]
    assert [run.path for run in find_runs(folders[1].path)] == [folders[1].path]
    assert find_runs(outputs / "nothing") == []


def test_a_run_that_lost_its_plan_is_found_and_what_it_set_aside_is_not(make_run, outputs):
    folder = make_run("F")
    folder.plan_path.unlink()
    assert [run.path for root in (outputs, outputs / "main", folder.path) for run in find_runs(root)] == [
        folder.path
    ] * 3
    set_aside(folder)
    assert (folder.path / "previous" / "1" / "result.json").exists()
    assert find_runs(outputs / "main") + find_runs(folder.path) + find_runs(folder.path / "previous") == []


def test_repeats_are_in_numerical_order(tmp_path):
    for index in (10, 2, 0):
        (tmp_path / f"repeat.{index}").mkdir()
    assert [path.name for path in RunFolder(tmp_path).repeats()] == ["repeat.0", "repeat.2", "repeat.10"]


def test_a_missing_jsonl_file_has_no_lines(tmp_path):
    assert list(read_json_lines(tmp_path / "events.jsonl")) == []


def test_a_result_comes_back_as_it_was_written(make_run):
    folder = make_run("F+R")
    result = folder.result()
    folder.write(folder.result_path, result)
    assert folder.result() == result
    assert isinstance(result, RunResult)
    assert not [name for name in os.listdir(folder.path) if name.startswith(".")]


def test_a_run_that_its_living_driver_has_left_without_a_result_does_not_go_on(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with acquire(folder.drivers):
        folder.event("running", **process_identity())
        assert folder.state() == "running"
    assert folder.state() == "killed"


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "result.json", "{}")
    assert list(tmp_path.iterdir()) == []
