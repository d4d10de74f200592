"""The section of served loads: its table and its pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_requests import answer, floor, served_row, serving_plan

from llmexp.paper.reference import PAPER
from llmexp.record.predicted import PredictedLoad, Prediction
from llmexp.report.columns import ReportTable
from llmexp.report.screen import console, print_table
from llmexp.serving.plan.load_points import probe_of
from llmexp.serving.report.section import ServingSection
from llmexp.serving.task import SERVE


def cells(table: ReportTable) -> dict[str, tuple[str, ...]]:
    return {column.header.replace("\u00a0", " "): column.cells for column in table.columns}


def test_every_load_of_every_run_has_a_line(tmp_path: Path) -> None:
    words = ("serve.rate=2,max", "serve.requests=2")
    answers = [answer(0), answer(1, 1.0), *(answer(index, point=1) for index in range(2))]
    one = served_row(tmp_path / "a", serving_plan(*words), *answers)
    broken = [each.model_copy(update={"problem": "gone"} if each.point else {}) for each in answers]
    other = served_row(tmp_path / "b", serving_plan(*words, "engine=llama_cpp"), *broken)
    section = ServingSection((one, other))
    (table,) = section.tables
    found = cells(table)
    assert section.title == "serving tiny, on cpu, fp32, 64 tokens in, 32 tokens out, 2 requests a load"
    assert found["run"] == ("transformers", "transformers", "llama_cpp", "llama_cpp")
    assert found["load"] == ("2/s", "max", "2/s", "max")
    assert found["requests/s"] == ("0.667", "1.00", "0.667", "-")
    pair = "1,000\u00a0/\u00a01,000"
    assert found["TTFT, ms p50 / p99"] == (pair, pair, pair, "")
    assert "not measured: no request got a complete answer: gone" in table.legend


def test_what_differs_between_runs_is_said_with_its_name(tmp_path: Path) -> None:
    rates = ("serve.rate=max", "serve.requests=2"), ("serve.rate=4", "serve.requests=3")
    one, other = (served_row(tmp_path / words[0], serving_plan(*words), answer(0)) for words in rates)
    section = ServingSection((one, other))
    assert [section.label(row) for row in (one, other)] == [
        "transformers 2 requests at max",
        "transformers 3 requests at 4/s",
    ]


def test_the_pictures_are_the_distributions_and_throughput_against_interactivity(tmp_path: Path) -> None:
    plan = serving_plan("serve.rate=2,max", "serve.requests=2")
    answers = [answer(0), answer(1, 1.0), *(answer(index, point=1, takes_s=4.0) for index in range(2))]
    section = ServingSection((served_row(tmp_path / "a", plan, *answers),))
    written = section.draw_more(tmp_path / "report.png")
    assert [path.name for path in written] == ["report_latencies.png", "report_interactivity.png"]
    assert all(path.stat().st_size > 10_000 for path in written)


@pytest.mark.parametrize("changed", [{"tokens": 1}, {"chunk_us": []}])
def test_answers_without_a_time_per_token_have_the_pictures_of_the_others(tmp_path: Path, changed) -> None:
    plan = serving_plan("serve.rate=max", "serve.requests=2")
    section = ServingSection((served_row(tmp_path / "a", plan, *(answer(index, **changed) for index in range(2))),))
    assert [path.name for path in section.draw_more(tmp_path / "report.png")] == ["report_latencies.png"]
    titles = {chart.title for chart in section.charts}
    assert "Distribution of the end-to-end latency" in titles
    assert "Distribution of the time per output token" not in titles


def test_the_table_of_loads_fits_a_terminal_and_keeps_its_headings(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    words = ("serve.rate=2,max", "serve.requests=2", "serve.slo.ttft_s=1", "serve.arrivals=constant")
    answers = [answer(0), answer(1, 1.0), *(answer(index, point=1, takes_s=2000) for index in range(2))]
    one = served_row(tmp_path / "a", serving_plan(*words), *answers)
    plan = serving_plan(*words, "engine=vllm", "engine.options.block_size=16", "engine.options.max_sequences=128")
    plan.label = "engine.options.block_size=16 engine.options.max_sequences=128"
    section = ServingSection((one, served_row(tmp_path / "b", plan, *answers)))
    (table,) = section.tables
    print_table(table, console())
    lines = capsys.readouterr().out.splitlines()
    rule = next(number for number, line in enumerate(lines) if "───" in line)
    assert max(map(len, lines[: rule + 1])) <= 100
    plain = [line.replace("\u00a0", " ") for line in lines]
    assert "end to end, ms" in plain[rule - 2]
    assert plain[rule - 1].count("p50 / p99") >= 2
    assert any("1,000,000 / 1,000,000" in line for line in plain)
    left_out = next(line for line in lines if line.startswith("columns hidden "))
    assert "): ITL, ms p50 / p99" in left_out


def test_a_search_is_told_below_its_probes_and_drawn(tmp_path: Path) -> None:
    plan = serving_plan("serve.rate=[]", "serve.requests=60", "serve.search.most_probes=1")
    probe = probe_of(plan.config.serve, 0, 1, 1.0)
    row = served_row(tmp_path / "a", plan, *(answer(i, float(i), 0.1) for i in range(60)), probes=[probe])
    section = ServingSection((row,))
    (table,) = section.tables
    assert cells(table)["load"] == ("1/s,\u00a0probe\u00a01",)
    words = "at least 1 requests/s; it ended because 1 probe, the only one allowed, was made"
    assert f"saturation of transformers, by search: {words}" in table.legend
    assert not any(line.startswith("saturation of transformers: ") for line in table.legend)
    assert [path.name for path in section.draw_more(tmp_path / "report.png")] == ["report_latencies.png"]
    SERVE.draw(row, tmp_path)
    assert (tmp_path / "repeat.0.png").exists()


def test_the_table_shows_the_first_turn_beside_the_later_ones(tmp_path: Path) -> None:
    plan = serving_plan("serve.rate=max", "serve.requests=1", "serve.turns=2")
    row = served_row(tmp_path / "a", plan, answer(0, takes_s=1.0), answer(1, 1.0, takes_s=4.0, turn=1))
    (table,) = ServingSection((row,)).tables
    assert cells(table)["TTFT p50, ms 1st turn / later"] == ("500\u00a0/\u00a02,000",)


def test_the_clients_own_share_stands_below_the_loads(tmp_path: Path) -> None:
    plan = serving_plan("serve.rate=max", "serve.requests=1")
    row = served_row(tmp_path / "a", plan, answer(0), floors=[floor(ttft_p50_s=0.02)])
    (table,) = ServingSection((row,)).tables
    said = "of median latencies at most 2.0% are the client's own, measured on a server that answers at once: "
    assert said + "20.0 of 1,000 ms TTFT of transformers at max" in table.legend


def test_each_load_stands_beside_what_its_plan_predicted(tmp_path: Path) -> None:
    plan = serving_plan("serve.rate=2,max", "serve.requests=2")
    wide = {"low": 0.1, "high": 1e6, "tpot_low_s": 1e-6, "tpot_high_s": 1e3, "ttft_low_s": 0.0, "ttft_high_s": 1.0}
    burst = PredictedLoad(load="max", rate=8.0, tpot_s=0.5, ttft_s=0.1, in_flight=2, saturated=True, **wide)
    narrow = burst.model_copy(update={"load": "2/s", "low": 7.0})
    plan.predicted = Prediction(
        rate=8.0, low=1.0, high=9.0, held_out_runs=9, source="a test", parts_s={}, loads=[narrow, burst]
    )
    answers = [answer(0), answer(1, 1.0), *(answer(index, point=1) for index in range(2))]
    row = served_row(tmp_path / "a", plan, *answers)
    (table,) = ServingSection((row,)).tables
    rates = [point.metrics["output_tokens_per_s"].mean for point in row.result.points]
    tpots = [point.metrics["tpot_p50_s"].mean for point in row.result.points]
    below, within = (f"{rate / 8.0:.2f}" for rate in rates)
    assert cells(table)["x predicted tokens/s / TPOT"] == (
        f"{below}\u00a0*\u00a0/\u00a0{tpots[0] / 0.5:.2f}",
        f"{within}\u00a0/\u00a0{tpots[1] / 0.5:.2f}",
    )
    assert any(line.startswith("x predicted tokens/s / TPOT: measured over") for line in table.legend)
    plan.predicted = None
    (without,) = ServingSection((served_row(tmp_path / "b", plan, *answers),)).tables
    assert not any("predicted" in name for name in cells(without))


def test_without_answers_there_is_no_picture(tmp_path: Path) -> None:
    plan = serving_plan("serve.rate=max", "serve.requests=1")
    section = ServingSection((served_row(tmp_path / "a", plan, answer(0, problem="gone")),))
    assert section.draw_more(tmp_path / "report.png") == []


def test_loads_of_the_papers_kind_are_its_figures(tmp_path: Path) -> None:
    answers = [answer(0), answer(1, 1.0)]
    row = served_row(tmp_path / "a", serving_plan("serve=paper", "serve.requests=2", "model=7b"), *answers)
    (view,) = PAPER.beside(ServingSection((row,))).views()
    assert view.name == "fig06"
    assert any("LightLLM has nearly twice the throughput" in line for line in view.table.legend)
    own = served_row(tmp_path / "b", serving_plan("serve.rate=max", "serve.requests=2"), *answers)
    assert PAPER.beside(ServingSection((own,))).views() == []
