"""Every measured row of a GPU stands beside its prediction, and the pages have what the command writes of them."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from benchmarks.prediction import gpu_picture
from benchmarks.prediction.gpu_bars import bars_of
from benchmarks.prediction.gpu_page import PAGE, page, summary_rows
from benchmarks.prediction.gpu_rows import CARDS, GpuRow, gpu_rows
from benchmarks.prediction.gpu_tables import largest, memory, names, speeds
from llmexp.record.digits import rounded
from llmexp.training.predict.rates import CARRIED

RESULTS, PREDICTION = Path("docs/results"), Path("docs/prediction.md")
TYPED = (
    "python -m llmexp engine=torch model=7b data=synthetic data.seq_len=350 precision=bf16_pure parallelism.dp=1 "
    "method=F batch.micro=16"
)


@pytest.fixture(scope="module")
def rows() -> list[GpuRow]:
    return gpu_rows()


@pytest.fixture
def made_up(tmp_path: Path) -> Callable[..., list[GpuRow]]:
    """Rows of a table of one H100, by what differs from a training that ran."""

    def made(*changes: dict[str, str]) -> list[GpuRow]:
        ran = {"state": "success", "task": "pretrain", "engine": "torch", "model": "7b", "method": "F"}
        ran |= {"hardware": "h100", "rate": "tokens_per_s", "batch_micro": "16", "batch_accumulation": "1"}
        ran |= {"seq_len": "350", "precision": "bf16_pure", "tokens_per_s": "10000", "command": TYPED}
        table = tmp_path / "h100" / "made_up.csv"
        table.parent.mkdir()
        with table.open("w", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*ran, "peak_allocated_bytes"])
            writer.writeheader()
            writer.writerows(ran | change for change in changes)
        return gpu_rows(tmp_path)

    return made


def cells(lines: list[str], number: int) -> list[str]:
    """The cells of a row of a table, counted from 0."""
    return [
        cell.strip() for cell in [line for line in lines if line.startswith("| ")][2 + number].strip("|").split("|")
    ]


def test_the_page_is_what_the_command_writes(rows) -> None:
    assert PAGE.read_text() == page(rows), "python -m benchmarks.prediction.gpu_page writes it"


def test_the_page_of_predictions_has_the_same_errors(rows) -> None:
    told = PREDICTION.read_text()
    missing = [line for each in summary_rows(rows) if (line := f"| {' | '.join(each)} |") not in told]
    assert missing == [], "it has the lines that python -m benchmarks.prediction.gpu_page prints"


def test_each_row_of_the_tables_is_there_with_its_speed(rows) -> None:
    files = [path for card in CARDS for path in sorted((RESULTS / card).glob("*.csv"))]
    measured = [(path.stem, row) for path in files for row in csv.DictReader(path.read_text().splitlines())]
    shown = [line for line in speeds(rows) if line.startswith("| [")]
    assert len(measured) == len(shown) > 20
    for (table, row), line in zip(measured, shown, strict=True):
        speed = row.get(row.get("rate") or "")
        assert f"{row['hardware']}/{table}.md" in line
        assert f"| {rounded(float(speed)) if speed else ''}" in line


def test_no_earlier_run_takes_part(rows) -> None:
    plans = [row.plan for row in rows if row.plan]
    assert {plan.predicted.source for plan in plans if plan.predicted and plan.config.task.name != "serve"} == {CARRIED}
    assert [plan for plan in plans if Path(plan.config.sweep.outputs).exists()] == []
    assert "outputs" not in {plan.config.sweep.outputs for plan in plans}


def test_an_error_is_predicted_over_measured(made_up) -> None:
    (row,) = made_up({"peak_allocated_bytes": "76254786560"})
    assert row.prediction
    assert row.off == pytest.approx(row.prediction.rate / 10_000 - 1)
    assert row.held
    assert row.memory_off == pytest.approx(0, abs=0.02)
    slow = replace(row, row={**row.row, "tokens_per_s": "100"})
    assert not slow.held
    assert cells(speeds([slow]), 0)[-2] == "no"


def test_what_ran_out_of_memory_stands_beside_the_verdict(made_up) -> None:
    rows = made_up(
        {"batch_micro": "8", "command": TYPED.replace("micro=16", "micro=8")},
        {"state": "oom", "tokens_per_s": "", "batch_micro": "32", "command": TYPED.replace("micro=16", "micro=32")},
    )
    assert cells(speeds(rows), 1)[8] == "out of memory"
    assert [cells(memory(rows), number)[-2:] for number in (0, 1)] == [["yes", "ran"], ["no", "out of memory"]]
    assert cells(largest(rows), 0)[-4:] == ["8", "32", "8", "32"]


def test_servers_are_counted_by_themselves(made_up) -> None:
    served = "python -m llmexp task=serve engine=vllm model=1b serve.rate=[8,max] serve.prompt.tokens=512"
    of_server = {"task": "serve", "engine": "vllm", "method": "", "command": served}
    rows = made_up({}, of_server)
    assert [cells[:2] for cells in summary_rows(rows)] == [
        ["tokens/s on one H100, none of them in the fit", "1"],
        ["output tokens/s of servers on one H100, none of them in the fit", "1"],
    ]
    assert cells(speeds(rows), 1)[4:7] == ["8/s, max", "512 + 128", "bf16"]


def test_the_picture_has_a_point_for_each_error(rows, tmp_path, monkeypatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(gpu_picture, "save", lambda figure, path: drawn.append(figure))
    gpu_picture.draw(rows, tmp_path / "drawn.png")
    points = [
        sum(len(dots.get_offsets()) for dots in axes.collections if dots.get_label()[0] != "_")
        for axes in drawn[0].axes
    ]
    assert points == [sum(row.off is not None for row in rows), sum(row.memory_off is not None for row in rows)]


def test_the_bars_are_all_trainings_of_7b_at_4096_positions(rows) -> None:
    drawn = bars_of(rows)
    long = [row for row in rows if (row.row.get("model"), row.row.get("seq_len")) == ("7b", "4096") and row.measured]
    assert {(row.card, *names(row)[1:]) for _, row in drawn} == {(row.card, *names(row)[1:]) for row in long}
    assert len(drawn) == len({label for label, _ in drawn}) > 10
    assert "h100 torchtitan_7b.py, 1" in dict(drawn)
    repeated = dict(drawn)["h100 torch F+C, 1 x 8 passes fused"]
    assert (repeated.table, repeated.row["measured_steps"]) == ("h100/protocol_7b", "100.0")


def test_a_row_that_is_not_predicted_says_why(made_up) -> None:
    script = TYPED.replace("engine=torch", "engine=script engine.options.command=benchmarks/peers/trainer_7b.py")
    rows = made_up(
        {"command": script.replace("method=F", "method=Naive")},
        {"command": TYPED.replace("method=F", "method=Unheard")},
    )
    assert cells(speeds(rows), 0)[9] == "engine=script is not predicted"
    assert "Unheard" in cells(speeds(rows), 1)[9]
    assert [row.off for row in rows] == [None, None]
