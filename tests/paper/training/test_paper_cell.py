"""The paper's cell of the same work as a run, and our figures over it."""

import pytest

from llmexp.paper.training.cell import cell_of, memory_over_paper, over_paper, settings_unlike
from llmexp.report.row import read_row
from llmexp.report.table import build_report

PURE = {"name": "bf16_pure", **dict.fromkeys(("parameters", "gradients", "master", "moments"), "bf16")}
PAPER = {"model__name": "7b", "hardware__name": "a800", "precision": PURE}


def test_the_papers_cell_is_found_after_canonicalising(make_run):
    row = read_row(make_run("F+R", metrics={"tokens_per_s": 2 * 7528.7, "peak_allocated_bytes": 66.1e9 / 2}, **PAPER))
    assert cell_of(row).method == "R+F"
    assert over_paper(row).value == pytest.approx(2)
    assert memory_over_paper(row) == pytest.approx(0.5)


def test_where_the_paper_ran_out_of_memory_there_is_no_ratio(make_run):
    row = read_row(make_run("Naive", metrics={"tokens_per_s": 1.0}, model__name="7b", hardware__name="rtx4090"))
    assert cell_of(row).oom
    assert over_paper(row) is None
    assert memory_over_paper(row) is None


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
    assert cell_of(read_row(make_run("Naive", **PAPER))) is not None
    assert cell_of(read_row(make_run("Naive", **PAPER | other))) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"precision": PURE | {"name": "bf16_mixed", "master": "fp32", "moments": "fp32"}}, "precision=bf16_mixed"),
        ({"optimizer__name": "sgd"}, "optimizer=sgd"),
        ({"memory": {"activation_offload": True}}, "memory.activation_offload"),
        ({"memory": {"keep": "attention"}}, "memory.keep"),
        ({"memory": {"recompute_layers": 2}}, "memory.recompute_layers"),
        ({"memory": {"optimizer_folder": "/nvme"}}, "memory.optimizer_folder"),
    ],
)
def test_a_run_of_other_states_than_the_papers_stands_beside_its_cell_without_a_ratio(make_run, changes, said):
    folder = make_run("F", metrics={"tokens_per_s": 1.0, "peak_allocated_bytes": 1.0}, **PAPER | changes)
    row = read_row(folder)
    assert cell_of(row) is not None
    assert (over_paper(row), memory_over_paper(row)) == (None, None)
    report = build_report([folder])
    assert report.sections[0].notes[0] == f"no ratio: the paper's cell is not of {said}"
    assert next(column.cells for column in report.sections[0].columns if column.header == "x paper") == ("(1)",)


def test_loras_targets_are_part_of_what_is_compared(make_run):
    tuned = {"task__name": "finetune", "metrics": {"tokens_per_s": 1.0}} | PAPER
    assert over_paper(read_row(make_run("L", **tuned))) is not None
    other = read_row(make_run("L", **tuned, adapter={"rank": 64, "targets": ["q_proj"]}))
    assert settings_unlike(other) == ["adapter.targets=q_proj"]


def test_a_run_that_searched_its_largest_batch_stands_beside_table_iv(make_run):
    searched = {"metrics": {"tokens_per_s": 1.0}, "batch": {"micro": "max", "accumulation": 1}} | PAPER
    paper = cell_of(read_row(make_run("F", **searched)))
    assert paper
    assert (paper.table, paper.batch_micro) == ("IV", 8)
