"""The review's case studies beside runs: its figures, what runs reach, and what that comes to at its model's size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compressed_runs import compress_plan, documents, trained_folder, write_run

from llmexp.record.folder import find_runs
from llmexp.report.columns import ReportTable
from llmexp.report.table import build_report
from llmexp.review.printed import QMOE, SPARSEGPT

EXPERTS = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 8,
    "moe_intermediate_size": 64,
}
TITLES = {"Beside the review: SparseGPT": "sparsegpt", "Beside the review: QMoE": "qmoe"}


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    model = trained_folder(tmp_path / "mine")
    for word, zeros in (("sparsegpt", 0.5), ("magnitude", 0.5), ("layers", 0.0)):
        plan = compress_plan(f"model={model}", f"compress={word}")
        write_run(tmp_path / "outputs", plan, documents(0.01), sparsity=zeros, weight_bits=32, layers_bytes=40_000_000)
    return tmp_path / "outputs"


def experts_folder(tmp_path: Path) -> Path:
    folder = trained_folder(tmp_path / "experts")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | EXPERTS))
    return folder


def tables(outputs: Path) -> dict[str, ReportTable]:
    sections = build_report(find_runs(outputs)).sections
    return {TITLES[table.title]: table for section in sections for table in section.tables if table.title in TITLES}


def rows(table: ReportTable) -> dict[str, dict[str, str]]:
    return {cells[0]: dict(zip(table.headers, cells, strict=True)) for cells in table.rows}


def test_sparse_runs_stand_below_what_the_review_prints(outputs: Path) -> None:
    found = rows(tables(outputs)["sparsegpt"])
    assert next(iter(found)) == "the review"
    assert set(found) == {"the review", "sparsegpt", "magnitude"}, "what is left out of a model has no zeros"
    printed, ours = found["the review"], found["sparsegpt"]
    assert (printed["zeros, %"], printed["billion weights gone"]) == ("50 to 60", "over 100")
    assert printed["million weights/s"] == "over 10.8"
    assert (ours["zeros, %"], ours["billion weights gone"], ours["GB of the review's model"]) == ("50", "87.5", "197")
    # 10 million weights in 2 s.
    assert (ours["perplexity ratio"], ours["million weights/s"]) == ("1.0101", "5.00")


def test_experts_have_the_size_that_their_bits_would_make_of_the_reviews_model(tmp_path: Path) -> None:
    model = f"model={experts_folder(tmp_path)}"
    plan = compress_plan(model, "compress=experts", "compress.group_size=32", "compress.weights=int3")
    sizes = {"weight_bits": 3.2, "layers_bytes": 400_000, "file_bytes": 1_000_000}
    write_run(tmp_path / "outputs", plan, documents(0.01), **sizes)
    table = tables(tmp_path / "outputs")["qmoe"]
    printed, ours = rows(table)["the review"], rows(table)["experts"]
    assert (printed["bits a weight"], printed["times smaller than 16 bits"]) == ("0.8", "20")
    assert printed["GB of the review's model"] == "under 160"
    assert (ours["bits a weight"], ours["times smaller than 16 bits"]) == ("3.2", "5")
    assert (ours["GB of the review's model"], ours["times smaller, file"]) == ("640", "4")
    said = " ".join(table.legend)
    assert "nearest" in said
    assert "not measured" in said
    assert "under 5 % slower" in said


def test_the_reviews_figures_agree_with_each_other() -> None:
    assert QMOE.gigabytes_at(16) == pytest.approx(3200)
    assert QMOE.gigabytes_at(float(QMOE.bits)) == pytest.approx(160)
    assert float(QMOE.smaller) == 16 / float(QMOE.bits)
    assert 0.6 * SPARSEGPT.weights > 100e9


def test_magnitude_alone_is_no_case_study(tmp_path: Path) -> None:
    plan = compress_plan(f"model={trained_folder(tmp_path / 'mine')}", "compress=magnitude")
    write_run(tmp_path / "outputs", plan, documents(0.01), sparsity=0.5)
    assert tables(tmp_path / "outputs") == {}


def test_the_report_command_shows_a_case_study_with_and_without_runs(outputs: Path, llmexp) -> None:
    code, out, err = llmexp("report", "review", str(outputs), "--format", "markdown")
    assert code == 0, err
    assert "| sparsegpt | 50 | 87.5 | 197 |" in out
    code, out, err = llmexp("report", "review", "qmoe", "--format", "markdown")
    assert code == 0, err
    assert "| the review | 0.8 | 20 | under 160 |" in out
    assert "planned" not in out
    code, out, err = llmexp("report", str(outputs), "--explain")
    assert code == 0, err
    assert "Beside the review: SparseGPT" in out
