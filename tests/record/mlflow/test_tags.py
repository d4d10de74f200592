import os

import pytest

from llmexp.record.mlflow.tags import status_of, tags_of
from llmexp.record.trackers.content import read


@pytest.mark.parametrize(("status", "told"), [("oom", "FINISHED"), ("skipped", "FINISHED"), ("timeout", "FAILED")])
def test_an_answer_is_finished_and_any_other_ending_failed(make_run, status, told):
    assert status_of(read(make_run(status=status))) == told


def test_a_run_whose_driver_died_is_killed(make_run):
    folder = make_run(status=None)
    folder.event("running", host=os.uname().nodename, pid=2**22 + 1, process_started_at_s=0.0)
    assert status_of(read(folder)) == "KILLED"


def test_a_run_is_found_again_by_tags_that_nobody_edits(make_run):
    content = read(make_run())
    tags = tags_of(content)
    assert (tags["llmexp.run"], tags["llmexp.sweep"], tags["llmexp.kind"]) == (content.id, "main", "run")
    assert tags["mlflow.source.git.commit"] == "c0ffee"
    assert content.tags.items() <= tags.items()
