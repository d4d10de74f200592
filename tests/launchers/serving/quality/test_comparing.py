"""What is compared of a served checkpoint: with which weights, and which change is expected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoints import write_with_tokenizer
from served_requests import serving_plan

from llmexp.launchers.serving.quality import comparing
from llmexp.launchers.serving.quality.comparing import judged_answers
from llmexp.serving.plan.quality import expected_changes
from llmexp.serving.record.quality import AnswerRecord, QualityRecord, quality_path

ASKED = "serve.quality=true"
ANSWERS = [AnswerRecord(prompt=[1, 2], tokens=[3] * 16), AnswerRecord(prompt=[1, 3], problem="HTTP status 500")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("checkpoints") / "mine"
    write_with_tokenizer(found)
    return found


def test_a_format_of_the_folders_own_lets_no_change_be_expected(folder: Path) -> None:
    lengths = ("serve.prompt.tokens=64", "serve.output.tokens=32", "hardware=a800")
    words = (ASKED, f"model={folder}", *lengths, "engine=vllm", "engine.options.quantization=fp8")
    assert expected_changes(serving_plan(*words).config) == ["engine.options.quantization=fp8"]
    place = folder / "config.json"
    before = place.read_text()
    place.write_text(json.dumps(json.loads(before) | {"quantization_config": {"quant_method": "fp8"}}))
    assert expected_changes(serving_plan(*words).config) == []
    place.write_text(before)


@pytest.mark.parametrize("program", ["llmexp.no_such_module", "json.tool"])
def test_a_process_that_fails_is_no_verdict_and_the_answers_are_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(comparing, "REFERENCE", program)
    monkeypatch.setattr(comparing, "NEARLY", 1e-6 if program == "json.tool" else 1.0)
    found = judged_answers(serving_plan(ASKED, f"model={folder}"), tmp_path, ANSWERS)
    assert found.verdict == "not told"
    assert ("took more than" if program == "json.tool" else "No module named llmexp.no_such_module") in found.reason
    record = QualityRecord.model_validate_json(quality_path(tmp_path).read_text())
    assert record.answers == ANSWERS


def test_a_server_that_answered_nothing_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "REFERENCE", "llmexp.no_such_module")
    found = judged_answers(serving_plan(ASKED), tmp_path, ANSWERS[1:])
    assert found.words == "not told: HTTP status 500"
