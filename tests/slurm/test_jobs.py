from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.slurm.jobs import (
    Intent,
    Submitted,
    intend,
    note,
    run_of,
    slurm_folder,
    submission_folder,
    submissions,
    unanswered,
    withdraw,
)
from llmexp.slurm.queue import QueuedJob


@pytest.fixture
def runs(tmp_path: Path) -> list[RunFolder]:
    """Two runs of a sweep."""
    slurm_folder(tmp_path / "main").mkdir(parents=True)
    return [RunFolder(tmp_path / "main" / name) for name in ("a", "b")]


def asked(runs: list[RunFolder], name: str) -> list[Intent]:
    intents = [Intent(run, name, task, "") for task, run in enumerate(runs)]
    intend(intents)
    return intents


def test_the_latest_submission_counts(runs):
    assert submissions(runs) == []
    note([Submitted(runs[0], QueuedJob("7_0", "first"), "")])
    latest = Submitted(runs[0], QueuedJob("9", "second"), "then")
    note([latest])
    assert submissions(runs) == [latest]


def test_what_was_asked_for_is_unanswered_until_its_number_is_noted(runs):
    intents = asked(runs, "first")
    assert (unanswered(runs), submissions(runs)) == (intents, [])
    note(one.taken("7") for one in intents)
    assert unanswered(runs) == []
    assert [one.job.number for one in submissions(runs)] == ["7_0", "7_1"]


def test_a_number_that_is_noted_late_stays_with_its_submission(runs):
    (lost, _), (again, _) = asked(runs, "first"), asked(runs, "second")
    note([again.taken("8")])
    note([lost.taken("7")])
    assert [one.job for one in submissions(runs[:1])] == [QueuedJob("8_0", "second")]


def test_a_job_that_has_begun_is_known_by_its_log(runs):
    intents = asked(runs, "first")
    submission_folder(runs[0].path.parent, "first").mkdir()
    intents[1].taken("7").log.touch()
    assert unanswered(runs) == []
    assert [one.job for one in submissions(runs)] == [QueuedJob("7_0", "first"), QueuedJob("7_1", "first")]


def test_a_line_that_was_cut_off_hides_no_other(runs):
    earlier = Submitted(runs[0], QueuedJob("7", "first"), "")
    note([earlier])
    jobs = slurm_folder(runs[0].path.parent) / "jobs.jsonl"
    jobs.write_text(jobs.read_text() + '{"folder": "b", "na')
    later = Submitted(runs[1], QueuedJob("8", "second"), "")
    note([later])
    assert submissions(runs) == [earlier, later]


def test_a_refused_submission_leaves_the_earlier_one(runs):
    intend([Intent(runs[0], "first", None, "")])
    earlier = Submitted(runs[0], QueuedJob("7", "first"), "")
    note([earlier])
    withdraw(asked(runs, "refused"))
    assert (submissions(runs), unanswered(runs)) == ([earlier], [])
    assert run_of(runs[0].path.parent, "first", None).path == runs[0].path


def test_a_job_finds_its_run_unless_that_was_submitted_again(runs):
    sweep = runs[0].path.parent
    asked(runs, "first")
    assert run_of(sweep, "first", 1).path == runs[1].path
    intend([Intent(runs[1], "second", None, "")])
    assert run_of(sweep, "first", 1) is None
    assert run_of(sweep, "first", 0).path == runs[0].path
    assert run_of(sweep, "second", None).path == runs[1].path
    with pytest.raises(RecordError, match="does not name the run of third, task 0"):
        run_of(sweep, "third", 0)
