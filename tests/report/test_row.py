import json

import pytest

from llmexp.errors import RecordError
from llmexp.record.identity import process_identity
from llmexp.report.row import read_row
from llmexp.report.table import build_report
from llmexp.training.report.paper import over_paper

PURE = {"name": "bf16_pure", **dict.fromkeys(("parameters", "gradients", "master", "moments"), "bf16")}
PAPER = {"model__name": "7b", "hardware__name": "a800", "precision": PURE}


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


def test_the_papers_cell_is_found_after_canonicalising(make_run):
    row = read_row(make_run("F+R", metrics={"tokens_per_s": 2 * 7528.7, "peak_allocated_bytes": 66.1e9 / 2}, **PAPER))
    assert row.paper.method == "R+F"
    assert over_paper(row).value == pytest.approx(2)
    assert row.memory_over_paper == pytest.approx(0.5)


def test_where_the_paper_ran_out_of_memory_there_is_no_ratio(make_run):
    row = read_row(make_run("Naive", metrics={"tokens_per_s": 1.0}, model__name="7b", hardware__name="rtx4090"))
    assert row.paper.oom
    assert over_paper(row) is None
    assert row.memory_over_paper is None


@pytest.mark.parametrize(
    "other",
    [
        {"hardware__name": "cpu"},
        {"model__name": "tiny"},
        {"data__seq_len": 512},
        {"parallelism__dp": 4},
        {"batch": {"micro": 1, "accumulation": 2}},
        {"batch": {"micro": 3, "accumulation": 1}},
    ],
)
def test_other_work_has_no_paper_cell(make_run, other):
    assert read_row(make_run("Naive", **PAPER)).paper is not None
    assert read_row(make_run("Naive", **PAPER | other)).paper is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"precision": PURE | {"name": "bf16_mixed", "master": "fp32", "moments": "fp32"}}, "precision=bf16_mixed"),
        ({"optimizer__name": "sgd"}, "optimizer=sgd"),
        ({"memory": {"activation_offload": True}}, "memory.activation_offload"),
    ],
)
def test_a_run_of_other_states_than_the_papers_stands_beside_its_cell_without_a_ratio(make_run, changes, said):
    folder = make_run("F", metrics={"tokens_per_s": 1.0, "peak_allocated_bytes": 1.0}, **PAPER | changes)
    row = read_row(folder)
    assert row.paper is not None
    assert (over_paper(row), row.memory_over_paper) == (None, None)
    report = build_report([folder])
    assert report.sections[0].notes[0] == f"no ratio: the paper's cell is not of {said}"
    assert next(column.cells for column in report.sections[0].columns if column.header == "x paper") == ("(1)",)


def test_loras_targets_are_part_of_what_is_compared(make_run):
    tuned = {"task__name": "finetune", "metrics": {"tokens_per_s": 1.0}} | PAPER
    assert over_paper(read_row(make_run("L", **tuned))) is not None
    assert (
        read_row(make_run("L", **tuned, adapter={"rank": 64, "targets": ["q_proj"]})).unlike_paper
        == "adapter.targets=q_proj"
    )


def test_a_run_that_searched_its_largest_batch_stands_beside_table_iv(make_run):
    searched = {"metrics": {"tokens_per_s": 1.0}, "batch": {"micro": "max", "accumulation": 1}} | PAPER
    paper = read_row(make_run("F", **searched)).paper
    assert paper
    assert (paper.table, paper.batch_micro) == ("IV", 8)


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
