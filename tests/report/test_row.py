import json

import pytest

from llmexp.errors import RecordError
from llmexp.record.identity import process_identity
from llmexp.report.row import read_row


def test_a_run_is_read_with_its_metrics_and_command(make_run):
    row = read_row(make_run("R+F", metrics={"tokens_per_s": 10.0}))
    assert (row.model, row.method, row.hardware, row.processes, row.seq_len) == ("tiny", "F+R", "cpu", 2, 350)
    assert row.metric("tokens_per_s").mean == 10
    assert row.command == "python -m llmexp method=R+F"


@pytest.mark.parametrize("status", ["oom", "timeout", "skipped", "incomplete", "failed", "killed"])
def test_only_success_has_metrics(make_run, status):
    row = read_row(make_run(status=status, metrics={"tokens_per_s": 10.0, "peak_allocated_bytes": 1.0}))
    assert row.state == status
    assert row.metric("tokens_per_s") is None
    assert row.memory is None


def test_what_was_not_measured_is_named_and_shows_no_figures(make_run):
    folder = make_run(metrics={"tokens_per_s": 10.0})
    folder.result_path.write_text(folder.result_path.read_text().replace('"measured"', '"predicted"'))
    row = read_row(folder)
    assert (row.state, row.reason) == ("predicted", "predicted, not measured")
    assert row.metric("tokens_per_s") is None


def test_runs_without_a_result_say_how_they_stand(make_run):
    folder = make_run(status=None)
    assert read_row(folder).state == "planned"
    folder.event("running", **process_identity())
    assert read_row(folder).state == "running"
    folder.event("running", **process_identity() | {"process_started_at_s": 1.0, "start_ticks": 1})
    row = read_row(folder)
    assert row.state == "killed"
    assert row.reason.startswith("the driver ended without writing a result; last event at 2")


def test_a_reason_becomes_one_line(make_run):
    assert read_row(make_run(status="failed", reason="it\nbroke  twice")).reason == "it broke twice"


def test_memory_is_the_allocators_peak_and_without_one_the_training_state(make_run):
    both = {"peak_allocated_bytes": 5.0, "training_state_bytes": 3.0}
    assert read_row(make_run(metrics=both)).memory == ("peak_allocated_bytes", 5.0)
    del both["peak_allocated_bytes"]
    assert read_row(make_run(metrics=both)).memory == ("training_state_bytes", 3.0)


@pytest.mark.parametrize("text", ["", "[1]", json.dumps({"method": "Naive"})])
def test_a_folder_whose_plan_is_none_is_an_error(make_run, text):
    folder = make_run()
    folder.plan_path.write_text(text)
    with pytest.raises(RecordError, match=r"plan\.json"):
        read_row(folder)


@pytest.mark.parametrize("schedule", [None, "gpipe", "zero_bubble"])
def test_pipelines_are_told_apart_by_their_schedule(make_run, schedule):
    pipeline = {"dp": 1, "pp": 2, "schedule": schedule}
    row = read_row(make_run(engine__name="torch", parallelism=pipeline, batch={"micro": 1, "accumulation": 2}))
    assert row.layout == f"pp 2 {schedule or '1f1b'}"


@pytest.mark.parametrize("kind", [None, "ring", "ulysses"])
def test_sequences_cut_over_ranks_are_told_apart_by_how_attention_sees_them(make_run, kind):
    cut = {"dp": 1, "cp": 2, "cp_kind": kind}
    row = read_row(
        make_run(
            engine__name="megatron", data__seq_len=352, **{f"parallelism__{key}": value for key, value in cut.items()}
        )
    )
    assert row.layout == f"cp 2 {kind or 'ring'}"
