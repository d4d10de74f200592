"""The report of compressed models: a row a recipe, the front of quality and bytes, and its picture."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from compressed_runs import compress_plan, documents, result_of, trained_folder, write_run

from llmexp.compress.report.section import CompressSection
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus, Stability
from llmexp.report.table import build_report

# The recipe, nats a token that it loses, bytes of its layers.
RUNS = {"w8a8": (0.01, 800_000), "fp8": (0.05, 900_000), "nvfp4": (0.1, 450_000), "layers": (1.5, 600_000)}
READ = ((100, 250.0), (200, 490.0), (300, 770.0))


@pytest.fixture
def folders(tmp_path: Path) -> list[RunFolder]:
    model = trained_folder(tmp_path / "mine")
    made = []
    for name, (worse, layers_bytes) in RUNS.items():
        plan = compress_plan(f"model={model}", f"compress={name}")
        samples = [sample.model_copy(update={"nll": sample.nll + sample.index}) for sample in documents(worse, READ)]
        made.append(write_run(tmp_path / "outputs", plan, samples, layers_bytes=layers_bytes))
    return made


def section_of(folders: list[RunFolder]) -> CompressSection:
    (section,) = build_report(folders).sections
    assert isinstance(section, CompressSection)
    return section


def cells(section: CompressSection, header: str) -> dict[str, str]:
    columns = {column.header: column.cells for column in section.columns}
    return dict(zip(columns["compress"], columns[header], strict=True))


def test_a_row_a_recipe_with_the_front_marked(folders: list[RunFolder]) -> None:
    section = section_of(folders)
    shown = cells(section, "perplexity")
    assert {name for name, cell in shown.items() if cell.endswith(" *")} == {"w8a8", "nvfp4"}
    assert cells(section, "layers, MB") == {"w8a8": "0.8", "fp8": "0.9", "nvfp4": "0.45", "layers": "0.6"}
    ratio = cells(section, "ratio [95 %]")["w8a8"]
    assert ratio.startswith("1.0151 [1.0")
    assert section.title.startswith("mine made smaller on cpu, held-out documents: 32 of 512 tokens")
    assert all(section.legend)


def test_a_disturbed_machine_casts_doubt_on_the_time_alone(folders: list[RunFolder]) -> None:
    found = folders[0].result()
    assert found
    doubt = Stability(verdict="unstable", reasons=["contention: other processes"])
    folders[0].write(folders[0].result_path, found.model_copy(update={"stability": doubt}))
    section = section_of(folders[:1])
    assert cells(section, "compression, s") == {"w8a8": "2 ! (1)"}
    assert cells(section, "perplexity") == {"w8a8": "12.57"}


def test_a_run_that_failed_says_so_and_is_on_no_front(folders: list[RunFolder], tmp_path: Path) -> None:
    plan = compress_plan(f"model={tmp_path / 'mine'}", "compress=heads")
    failed = RunFolder(tmp_path / "outputs" / plan.folder_name)
    failed.write(failed.plan_path, plan)
    failed.write(failed.result_path, result_of(plan, RunStatus.FAILED, reason="its head was lost"))
    section = section_of([*folders, failed])
    assert cells(section, "perplexity")["heads"] == "failed (1)"
    assert section.notes == ["its head was lost"]


def test_the_chart_joins_the_front_and_has_the_interval_of_each_run(folders: list[RunFolder]) -> None:
    (chart,) = section_of(folders).charts
    runs, front, original = chart.traces
    assert list(front.x) == [0.45, 0.8]
    assert len({*original.y}) == 1
    for y, interval in zip(runs.y, runs.intervals, strict=True):
        assert interval
        assert interval[0] < y < interval[1]
    assert chart.log_y is True


def test_one_run_has_no_front_and_no_chart(folders: list[RunFolder]) -> None:
    section = section_of(folders[:1])
    assert (list(section.charts), "*" in cells(section, "perplexity")["w8a8"]) == ([], False)


def test_the_report_command_writes_all_forms(folders: list[RunFolder], llmexp, tmp_path: Path) -> None:
    outputs = str(tmp_path / "outputs")
    code, out, err = llmexp("report", outputs, "--format", "csv")
    assert code == 0, err
    rows = {row["compress"]: row for row in csv.DictReader(io.StringIO(out))}
    assert float(rows["w8a8"]["perplexity_ratio_low"]) < float(rows["w8a8"]["perplexity_ratio"])
    assert rows["nvfp4"]["layers_bytes"] == "450000.0"
    code, out, err = llmexp("report", outputs, "--figure", str(tmp_path / "report.png"))
    assert code == 0, err
    assert (tmp_path / "report_quality.png").stat().st_size > 10_000
    code, _, err = llmexp("report", outputs, "--html", str(tmp_path / "report.html"))
    assert code == 0, err
    assert "Quality and bytes" in (tmp_path / "report.html").read_text()
