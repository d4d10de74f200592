from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from patience import HANG_S, until

from llmexp.errors import RecordError
from llmexp.launch import run
from llmexp.launch.attempt import only_attempt, set_aside
from llmexp.launch.run import run_one
from llmexp.record.folder import RunFolder
from llmexp.record.heartbeat import SILENT_S
from llmexp.record.lock import holder_file
from llmexp.record.result import RunStatus
from llmexp.sweep.measuring import measure


def test_earlier_attempts_are_set_aside_not_deleted(make_plan, folder):
    run_one(make_plan("broken"), folder)
    run_one(make_plan("incomplete"), folder)
    result = run_one(make_plan("well"), folder)
    assert result.status is RunStatus.SUCCESS
    assert len(folder.repeats()) == 1
    statuses = [RunFolder(folder.path / "previous" / number).result().status for number in ("1", "2")]
    assert statuses == [RunStatus.FAILED, RunStatus.INCOMPLETE]
    assert (folder.path / "previous" / "1" / "repeat.0" / "log.agent.txt").exists()


def test_the_uncommitted_changes_of_an_earlier_attempt_go_with_its_result(folder):
    folder.path.mkdir(parents=True)
    (folder.path / "git.llmexp.diff").write_text("earlier")
    folder.breakdown_path.write_text("{}")
    set_aside(folder)
    assert folder.diffs() == []
    assert not folder.breakdown_path.exists()
    assert (folder.path / "previous" / "1" / "git.llmexp.diff").read_text() == "earlier"


def test_the_result_is_set_aside_before_what_it_rests_on(make_plan, folder, monkeypatch):
    folder.repeat(0).mkdir(parents=True)
    folder.events_path.touch()
    folder.result_path.touch()
    moved, rename = [], Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, target: moved.append(path.name) or rename(path, target))
    set_aside(folder)
    assert moved == ["result.json", "repeat.0", "events.jsonl"]


def test_set_aside_of_a_new_folder_makes_nothing(folder):
    set_aside(folder)
    assert not folder.path.exists()


def test_second_driver_in_the_same_folder_is_refused_and_touches_nothing(make_plan, folder):
    run_one(make_plan("broken"), folder)
    with only_attempt(folder), pytest.raises(RecordError, match="another llmexp"):
        run_one(make_plan("well"), folder)
    assert folder.state() == "failed"
    assert run_one(make_plan("well"), folder).status is RunStatus.SUCCESS


ELSEWHERE = {"boot_id": "another's", "host": "elsewhere"}


def test_a_driver_whose_run_another_took_while_it_stood_still_ends_its_ranks_and_leaves_the_others_result(
    make_plan, folder, start_driver, processes
):
    driver = start_driver(make_plan("hang"))
    until((folder.repeat(0) / "samples.0.jsonl").exists)
    driver.suspend()
    holder = holder_file(folder.drivers)
    holder.write_text(json.dumps(json.loads(holder.read_text()) | ELSEWHERE))
    os.utime(holder, (holder.stat().st_mtime - 2 * SILENT_S,) * 2)
    result = run_one(make_plan("well"), folder)
    assert result.status is RunStatus.SUCCESS, result.reason
    driver.resume()
    assert driver.wait(timeout=HANG_S) == 1
    until(lambda: not processes())
    assert folder.result() == result
    assert [event["status"] for event in folder.events()] == ["running", "success"]
    assert "samples.0.jsonl" in os.listdir(folder.path / "previous" / "1" / "repeat.0")


def test_a_result_is_not_laid_over_that_of_a_driver_which_took_the_run_and_has_ended(
    make_plan, folder, capsys, monkeypatch
):
    classify = run.classify

    def taken_meanwhile(ended):
        other = folder.drivers / "2"
        other.mkdir()
        (other / ".holder").touch()
        folder.result_path.write_text("the other's")
        return classify(ended)

    monkeypatch.setattr(run, "classify", taken_meanwhile)
    assert measure(make_plan("well"), folder) is False
    assert folder.result_path.read_text() == "the other's"
    said = (
        "another llmexp has taken over this run, because this one showed no sign of life for 10 min or more: "
        "a process that has ended by now"
    )
    assert capsys.readouterr().out == f"{folder.path.name}: {said}\n"
