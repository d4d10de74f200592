"""The section of served loads: its table and its pictures."""

from __future__ import annotations

from pathlib import Path

from served_requests import answer, served_row, serving_plan

from llmexp.report.columns import Detail
from llmexp.tasks.serving.report.section import ServingSection


def cells(detail: Detail) -> dict[str, tuple[str, ...]]:
    return {column.header.replace("\u00a0", " "): column.cells for column in detail.columns}


def test_every_load_of_every_run_has_a_line(tmp_path: Path) -> None:
    words = ("serve.rate=2,max", "serve.requests=2")
    answers = [answer(0), answer(1, 1.0), *(answer(index, point=1) for index in range(2))]
    one = served_row(tmp_path / "a", serving_plan(*words), *answers)
    broken = [each.model_copy(update={"problem": "gone"} if each.point else {}) for each in answers]
    other = served_row(tmp_path / "b", serving_plan(*words, "engine=llama_cpp"), *broken)
    section = ServingSection((one, other))
    (detail,) = section.details
    found = cells(detail)
    assert section.title == "serving tiny, on cpu, fp32, 64 tokens in, 32 tokens out, 2 requests a load"
    assert found["run"] == ("transformers", "transformers", "llama_cpp", "llama_cpp")
    assert found["load"] == ("2/s", "max", "2/s", "max")
    assert found["requests/s"] == ("0.667", "1", "0.667", "-")
    pair = "1,000\u00a0/\u00a01,000"
    assert found["TTFT, ms p50 / p99"] == (pair, pair, pair, "")
    assert "not measured: no request was answered wholly: gone" in detail.legend


def test_the_pictures_are_the_distributions_and_throughput_against_interactivity(tmp_path: Path) -> None:
    plan = serving_plan("serve.rate=2,max", "serve.requests=2")
    answers = [answer(0), answer(1, 1.0), *(answer(index, point=1, takes_s=4.0) for index in range(2))]
    section = ServingSection((served_row(tmp_path / "a", plan, *answers),))
    written = section.draw_more(tmp_path / "report.png")
    assert [path.name for path in written] == ["report_latencies.png", "report_interactivity.png"]
    assert all(path.stat().st_size > 10_000 for path in written)


def test_without_answers_there_is_no_picture(tmp_path: Path) -> None:
    plan = serving_plan("serve.rate=max", "serve.requests=1")
    section = ServingSection((served_row(tmp_path / "a", plan, answer(0, problem="gone")),))
    assert section.draw_more(tmp_path / "report.png") == []
