"""What a report says of servers whose answers were compared with one process's."""

from __future__ import annotations

from pathlib import Path

from served_requests import answer, served_row, serving_plan

from llmexp.report.row import Row
from llmexp.serving.record.quality import QualitySummary
from llmexp.serving.report.answers import answers_table
from llmexp.serving.report.section import ServingSection

WORDS = ("serve.rate=max", "serve.requests=2", "serve.quality=true")
SAME = QualitySummary(verdict="same", reason="all agree", counted_tokens=200, agreeing_tokens=200, noise_nats=0.02)
CHANGED = SAME.model_copy(update={"verdict": "changed", "reason": "not all agree", "agreeing_tokens": 150})
EXPECTED = CHANGED.model_copy(update={"expected": ["engine.options.kv_dtype=fp8"]})


def row(folder: Path, quality: QualitySummary | None, *words: str) -> Row:
    return served_row(folder, serving_plan(*WORDS, *words), answer(0), answer(1), quality=quality)


def test_verdicts_stand_in_a_table_with_what_tells_them(tmp_path: Path) -> None:
    rows = [row(tmp_path / "a", SAME), row(tmp_path / "b", EXPECTED, "engine=vllm"), row(tmp_path / "c", None)]
    table = answers_table(rows, lambda each: each.name)
    assert table
    cells = {column.header: column.cells for column in table.columns}
    assert cells["run"] == ("transformers", "vllm")
    assert cells["answers"] == ("same", "changed (expected)")
    assert (cells["tokens that count"], cells["agreeing"]) == (("200", "200"), ("200", "150"))
    assert table.legend[1:] == [f"answers of vllm: {EXPECTED.words}"]
    assert answers_table([row(tmp_path / "d", None)], lambda each: each.name) is None


def test_a_server_that_gave_other_answers_is_not_called_as_fast_for_the_same_work(tmp_path: Path) -> None:
    section = ServingSection((row(tmp_path / "a", SAME), row(tmp_path / "b", CHANGED, "engine=vllm")))
    assert "vllm gives other answers than its weights: its speed is not that of the same work." in section.answers
    (line,) = [line for line in section.legend if line.startswith("same work")]
    assert line.endswith("; not the work of its weights, by serve.quality: vllm")
    quiet = ServingSection((row(tmp_path / "c", SAME), row(tmp_path / "d", SAME, "engine=vllm")))
    assert not any("its weights" in line for line in [*quiet.answers, *quiet.legend])
