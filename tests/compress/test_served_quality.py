"""Quality, bytes, tokens/s and cost side by side: each server beside the run whose model it serves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compressed_runs import compress_plan, documents, result_of, trained_folder, write_run
from served_requests import answer, served_row, serving_plan

from llmexp.compress.report.section import CompressSection
from llmexp.record.result import Metric, RunStatus, Stability
from llmexp.report.columns import ReportTable
from llmexp.report.row import Row, read_row
from llmexp.report.table import Report
from llmexp.schema import HfModel, MadeModel

TRAINED = "0" * 12
# The recipe, nats a token that it loses, bytes of its file, output tokens/s of its server.
RUNS = {"w8a8": (0.01, 1_000_000, 90.0), "fp8": (0.05, 1_200_000, 80.0), "layers": (0.5, 3_000_000, 200.0)}
ORIGINAL_TOKENS_PER_S = 100.0


def made_by(run: str) -> HfModel:
    made = MadeModel(run=run, folder="repeat.0/model")
    return HfModel(name="made", architecture="hf", path=f"/{run}/repeat.0/model", weights="pretrained", made=made)


def server(tmp_path: Path, run: str, tokens_per_s: float, *words: str, usd: float | None = None) -> Row:
    plan = serving_plan("model=tiny", "engine=transformers", "serve.rate=max,2", "serve.requests=2", *words)
    plan = plan.model_copy(update={"config": plan.config.model_copy(update={"model": made_by(run)})})
    row = served_row(tmp_path / f"{run}{tokens_per_s}", plan, answer(0), answer(1))
    assert row.result is not None
    points = row.result.points
    for point, rate in zip(points, (tokens_per_s, tokens_per_s / 2), strict=True):
        cost = None if usd is None else Metric(mean=usd * tokens_per_s / rate)
        point.metrics |= {"output_tokens_per_s": Metric(mean=rate), "usd_per_million_output_tokens": cost}
    told = {"metrics": {"output_tokens_per_s": Metric(mean=tokens_per_s)}, "repeats": 1}
    told_row: Row = replace(row, result=row.result.model_copy(update=told))
    return told_row


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Row]:
    """Runs that compressed the model of one training."""
    model = trained_folder(tmp_path / "mine")
    found = {}
    for name, (worse, file_bytes, _) in RUNS.items():
        plan = compress_plan(f"model={model}", f"compress={name}")
        path = str(plan.config.model.path)
        started = plan.config.model.model_copy(update={"made": made_by(TRAINED).made, "path": path})
        plan = plan.model_copy(update={"config": plan.config.model_copy(update={"model": started})})
        found[name] = read_row(write_run(tmp_path / "outputs", plan, documents(worse), file_bytes=file_bytes))
    return found


def served(made: dict[str, Row], *servers: Row) -> ReportTable:
    section = Report.of([*made.values(), *servers]).sections[0]
    assert isinstance(section, CompressSection)
    (found,) = [table for table in section.tables if table.title.startswith("Quality, bytes")]
    return found


def cells(table: ReportTable, header: str) -> dict[str, str]:
    columns: dict[str, Any] = {column.header: column.cells for column in table.columns}
    return dict(zip(columns["model"], columns[header], strict=True))


@pytest.fixture
def servers(made: dict[str, Row], tmp_path: Path) -> list[Row]:
    return [
        server(tmp_path, TRAINED, ORIGINAL_TOKENS_PER_S),
        *(server(tmp_path, made[name].id, rate) for name, (_, _, rate) in RUNS.items()),
    ]


def test_each_model_stands_beside_its_own_server(made: dict[str, Row], servers: list[Row]) -> None:
    table = served(made, *reversed(servers))
    rates = {"original": "100", "w8a8": "90", "fp8": "80", "layers": "200"}
    assert cells(table, "output tokens/s") == rates
    assert cells(table, "file, MB") == {"original": "4", "w8a8": "1", "fp8": "1.2", "layers": "3"}
    assert cells(table, "ratio") == {"original": "1.0000", "w8a8": "1.0101", "fp8": "1.0513", "layers": "1.6487"}
    hours = {name: float(rate) for name, rate in cells(table, "device-hours a million").items()}
    assert hours == {name: pytest.approx(1e6 / float(rate) / 3600, rel=0.01) for name, rate in rates.items()}
    assert "USD a million" not in table.headers


def test_the_front_has_what_no_other_beats_in_all_three(made: dict[str, Row], servers: list[Row]) -> None:
    shown = cells(served(made, *servers), "perplexity")
    assert {name for name, cell in shown.items() if cell.endswith(" *")} == {"original", "w8a8", "layers"}


def test_other_loads_are_no_rivals(made: dict[str, Row], servers: list[Row], tmp_path: Path) -> None:
    longer = server(tmp_path, made["fp8"].id, 85.0, "serve.output.tokens=7")
    columns = {column.header: column.cells for column in served(made, *servers, longer).columns}
    of_fp8 = {
        (rate, perplexity.endswith(" *"))
        for name, rate, perplexity in zip(
            columns["model"], columns["output tokens/s"], columns["perplexity"], strict=True
        )
        if name == "fp8"
    }
    assert of_fp8 == {("80", False), ("85", True)}


def test_a_price_is_that_of_the_fastest_load(made: dict[str, Row], tmp_path: Path) -> None:
    table = served(made, server(tmp_path, made["fp8"].id, 80.0, usd=1.25))
    assert cells(table, "USD a million") == {"fp8": "1.25"}


def test_a_doubtful_speed_has_its_sign_and_one_repeat_is_said(made: dict[str, Row], servers: list[Row]) -> None:
    first, *others = servers
    assert first.result is not None
    doubt = Stability(verdict="unstable", reasons=["contention: other processes"])
    doubtful = replace(first, result=first.result.model_copy(update={"stability": doubt}))
    table = served(made, doubtful, *others)
    assert cells(table, "output tokens/s")["original"] == "100 !"
    assert any(line.startswith("!: not to be relied on") for line in table.legend)
    assert any(line.startswith("one repeat: ") for line in table.legend)


def test_servers_of_other_models_and_failed_ones_are_left_out(made: dict[str, Row], tmp_path: Path) -> None:
    other = server(tmp_path, "f" * 12, 300.0)
    failed = replace(server(tmp_path, made["fp8"].id, 80.0), state=RunStatus.FAILED)
    section = Report.of([*made.values(), other, failed]).sections[0]
    assert not [table for table in section.tables if table.title.startswith("Quality, bytes")]


def test_a_compression_that_failed_shows_no_server(made: dict[str, Row], tmp_path: Path) -> None:
    broken = made["fp8"]
    plan: Any = broken.plan
    broken = replace(broken, state=RunStatus.FAILED, result=result_of(plan, RunStatus.FAILED, reason="lost"))
    table = served(made | {"fp8": broken}, *(server(tmp_path, made[name].id, 80.0) for name in ("fp8", "w8a8")))
    assert [*cells(table, "perplexity")] == ["w8a8"]
