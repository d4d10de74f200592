"""A run that is begun in a store while it goes on, and what becomes of it."""

from __future__ import annotations

import math

import pytest

from llmexp.record.mlflow import record_runs
from llmexp.record.mlflow.tracker import opened
from llmexp.record.trackers.content import RunContent
from llmexp.record.trackers.points import Point
from llmexp.record.writing import write_atomically


@pytest.fixture
def begin(tracking, outputs):
    def begin(folder):
        with opened(tracking, outputs, math.inf) as tracker:
            run_id, known = tracker.begin(RunContent(folder, "running"))
            loss = next(point for point in RunContent(folder, "running").points() if point.name == "repeat.0/loss")
            tracker.add(run_id, [loss, Point("repeat.0/step_time_s", 0.2, loss.at_ms)])
            tracker.add(run_id, [loss])
        return run_id, sorted(known)

    return begin


def test_a_run_is_begun_once_and_completed_by_its_own_ending(
    make_run, write_samples, tracking, client, recorded, begin
):
    folder = make_run()
    for rank in (0, 1):
        write_samples(folder.repeat(0), rank, [(0.1, 6.0)] * 25, from_s=2e9)
    run_id, known = begin(folder)
    [run] = recorded()
    assert (run.info.run_id, run.info.status, run.data.tags["status"], known) == (run_id, "RUNNING", "running", [])
    assert run.data.tags["mlflow.note.content"].startswith("**running**\n\nRepeat it with")
    assert begin(folder) == (run_id, ["repeat.0/loss", "repeat.0/step_time_s"])
    record_runs([folder], tracking)
    [run] = recorded()
    assert (run.info.run_id, run.info.status, run.data.tags["status"]) == (run_id, "FINISHED", "success")
    assert [point.step for point in client.get_metric_history(run_id, "repeat.0/loss")] == list(range(25))
    assert {"result.json", "plan.json"} <= {item.path for item in client.list_artifacts(run_id)}


def test_another_attempt_replaces_what_was_begun(make_run, tracking, recorded, begin):
    folder = make_run()
    run_id, _ = begin(folder)
    write_atomically(folder.events_path, folder.events_path.read_text().replace("20", "19", 1))
    record_runs([folder], tracking)
    [run] = recorded()
    assert run.info.run_id != run_id


def test_what_was_begun_with_other_parameters_is_replaced(make_run, tracking, client, recorded, begin):
    """MLflow keeps a parameter as it was first told."""
    folder = make_run()
    run_id, _ = begin(folder)
    client.log_param(run_id, "another", "8")
    record_runs([folder], tracking)
    [run] = recorded()
    assert run.info.run_id != run_id
    assert "another" not in run.data.params
