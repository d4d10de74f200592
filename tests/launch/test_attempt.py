from __future__ import annotations

import pytest

from llmexp.errors import RecordError
from llmexp.launch.attempt import only_attempt, set_aside
from llmexp.launch.run import run_one
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus


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
    set_aside(folder)
    assert folder.diffs() == []
    assert (folder.path / "previous" / "1" / "git.llmexp.diff").read_text() == "earlier"


def test_set_aside_of_a_new_folder_makes_nothing(folder):
    set_aside(folder)
    assert not folder.path.exists()


def test_second_driver_in_the_same_folder_is_refused_and_touches_nothing(make_plan, folder):
    run_one(make_plan("broken"), folder)
    with only_attempt(folder), pytest.raises(RecordError, match="another llmexp"):
        run_one(make_plan("well"), folder)
    assert folder.state() == "failed"
    assert run_one(make_plan("well"), folder).status is RunStatus.SUCCESS
