"""llmexp report paper in all its formats, on runs of the tiny model that were made up."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

CARDS = [{"name": "NVIDIA H100 80GB HBM3", "memory_mebibytes": 81559}] * 2
FOUND = {
    "cpu": {"model": "AMD EPYC 9654", "physical_cores": 96},
    "memory_bytes": 128 * 2**30,
    "gpus": {"driver_version": "580", "devices": CARDS},
}


@pytest.fixture
def sweep(make_run) -> str:
    tiny = {"sweep__name": "paper_table03", "parallelism__dp": 2}
    runs = [
        make_run(method, metrics={"tokens_per_s": speed, "training_state_bytes": 7e6}, **tiny)
        for method, speed in (("Naive", 100.0), ("F", 150.0))
    ]
    return str(runs[0].path.parent)


def test_the_table_is_printed(llmexp, here: Path, sweep) -> None:
    code, out, _ = llmexp("report", "paper", sweep)
    assert code == 0
    assert out.strip().startswith("table III of the paper, pre-training at batch 1: tiny on 2 x cpu, deepspeed")
    assert "22 cells: 2 measured, 20 no run" in out
    assert "llmexp report paper --missing prints the commands" in out


def test_the_other_formats(llmexp, here: Path, sweep) -> None:
    markdown = llmexp("report", "paper", sweep, "--format", "markdown")[1]
    assert markdown.startswith("### table III of the paper")
    rows = list(csv.DictReader(llmexp("report", "paper", sweep, "--format", "csv")[1].splitlines()))
    assert len(rows) == 22
    naive = rows[0]
    assert (naive["table"], naive["method"], naive["status"]) == ("table03", "Naive", "measured")
    assert (naive["tokens_per_s"], naive["tokens_per_s_per_gpu_over_paper"]) == ("100.0", "")
    assert (naive["paper_tokens_per_s"], naive["paper_doubtful"]) == ("7488.3", "True")
    latex = llmexp("report", "paper", sweep, "--format", "latex")[1]
    assert r"\caption{table III of the paper, pre-training at batch 1: tiny on 2 x cpu, deepspeed}" in latex
    assert r"\toprule" in latex


def test_the_page_and_the_files_are_written(llmexp, here: Path, sweep) -> None:
    code, out, _ = llmexp("report", "paper", sweep, "--html", "paper.html")
    assert (code, out.startswith("paper.html: 1 tables, ")) == (0, True)
    text = Path("paper.html").read_text()
    assert "tiny is not the paper&#39;s model" in text
    assert "experiment=paper_table03" in text
    assert "No run was measured to its end" not in text
    assert llmexp("report", "paper", sweep, "--into", "kept")[1].split() == [
        "kept/paper/table03.md",
        "kept/paper/table03.csv",
    ]


def test_the_missing_cells_are_commands(llmexp, here: Path, sweep) -> None:
    code, out, _ = llmexp("report", "paper", sweep, "--missing")
    title, command = out.splitlines()
    assert (code, title.startswith("# table III")) == (0, True)
    assert command.startswith("python -m llmexp experiment=paper_table03 model=tiny hardware=cpu method=Z2,")
    assert ",F," not in command


def test_the_pages_of_a_sweep_have_its_layout(llmexp, here: Path, sweep) -> None:
    assert llmexp("report", sweep, "--html", "runs.html")[0] == 0
    assert "table III of the paper, pre-training at batch 1" in Path("runs.html").read_text()
    assert "in the paper's layout, with the cells that are missing: llmexp report paper" in llmexp("report", sweep)[1]


def test_a_table_that_no_run_answers_is_the_papers_own(llmexp, here: Path, sweep) -> None:
    assert "table III of the paper, pre-training at batch 1: as printed" in llmexp("report", "paper", "table03")[1]
    out = llmexp("report", "paper", "table05", "table03", sweep)[1]
    assert out.index("tiny on 2 x cpu") < out.index("table V of the paper, phases of a step: as printed")
    assert "python -m llmexp experiment=paper_table05" in llmexp("report", "paper", "table05", "--missing")[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("paper",), "there are no runs in outputs to show beside the paper"),
        (("paper", "none"), "none does not exist, nor does outputs/none"),
        (("paper", "fig11"), "figure 11 of the paper has no printed values"),
        (("paper", "table03", "--setup"), "--setup does not go with llmexp report paper"),
        (("--missing",), "--missing is of llmexp report paper"),
        (("findings", "--missing"), "--missing does not go with llmexp report findings"),
    ],
)
def test_wrong_words_are_one_line(llmexp, here: Path, words, expected) -> None:
    code, _, error = llmexp("report", *words)
    assert (code, expected in error, error.count("\n")) == (2, True, 1)


def test_runs_that_answer_nothing_are_one_line(llmexp, here: Path, make_run) -> None:
    folder = make_run("Naive", metrics={"tokens_per_s": 1.0}).path.parent
    code, _, error = llmexp("report", "paper", str(folder))
    assert (code, error.count("\n")) == (2, 1)
    assert "none of these 1 runs answers a table of the paper" in error


def test_a_folder_of_that_name_is_reached_with_its_dot(llmexp, here: Path, sweep) -> None:
    (here / "table05").symlink_to(sweep)
    assert "tiny on 2 x cpu" in llmexp("report", "paper", "./table05")[1]


def test_each_machine_of_the_runs_has_a_line_of_table_i(llmexp, here: Path, make_run) -> None:
    runs = [make_run(method, metrics={"tokens_per_s": 1.0}) for method in ("Naive", "F")]
    for run in runs:
        run.write(run.result_path, run.result().model_copy(update={"environment": FOUND}))
    out = llmexp("report", "paper", "table01", str(runs[0].path.parent), "--format", "csv")[1]
    lines = [line for line in out.splitlines() if line.startswith("table01")]
    assert len(lines) == 3 + 1
    assert lines[-1].split(",", 3)[3].startswith("cpu,2 x NVIDIA H100 80GB HBM3,79.6,")
    assert '"AMD EPYC 9654, 96 cores",128,' in lines[-1]
    assert lines[-1].endswith(",2")


def test_table_i_without_runs_is_the_papers_own(llmexp, here: Path) -> None:
    out = llmexp("report", "paper", "I")[1]
    assert "table I of the paper, the machines: as printed, no run here has one" in out
    assert "2 x Intel Xeon Gold 6230" in out
