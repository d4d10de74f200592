"""Prompts of files: the forms of records that are read, and the line that is named where one is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.inputs.instructions import Message
from llmexp.serving.config.load import PromptTexts
from llmexp.serving.plan.prompt_texts import RecordedPrompts, check_texts, recorded, records_of

ASKED = (Message("user", "What?"),)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"prompt": "What?", "completion": "That."}, RecordedPrompts("What?", "That.")),
        ({"text": "What?"}, RecordedPrompts("What?")),
        ({"instruction": "What?", "output": "That."}, RecordedPrompts(ASKED, "That.")),
        (
            {"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "That."}]},
            RecordedPrompts(ASKED, "That."),
        ),
        (
            {"conversations": [{"from": "human", "value": "What?"}, {"from": "gpt", "value": "That."}, {"from": "x"}]},
            RecordedPrompts(ASKED, "That."),
        ),
        ("What?", RecordedPrompts("What?")),
    ],
)
def test_a_record_has_a_prompt_and_its_recorded_answer(record: object, expected: RecordedPrompts) -> None:
    assert recorded(record, None) == expected


def test_a_named_field_is_the_prompt() -> None:
    assert recorded({"question": "What?", "text": "another", "answer": "That."}, "question") == ("What?", "That.")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.jsonl", '{"prompt": "a"}\n\n{"prompt": 3}\n', ":3: prompt: expected a text, not int"),
        ("a.jsonl", '{"prompt": "a"}\n{"prompt"\n', ":2: not JSON"),
        ("a.jsonl", '{"question": "a"}\n', ":1: expected 'prompt' or 'text'"),
        ("a.jsonl", "\n", "has no records"),
        ("a.json", '[{"prompt": "a"}, {"text": " "}]', ":2: text: expected a text"),
        ("a.jsonl", '{"conversations": [{"from": "gpt", "value": "a"}]}\n', ":1: conversations: expected a turn with"),
        ("a.csv", "a\n", "expected a file of .jsonl"),
    ],
)
def test_a_wrong_record_is_named_with_its_place(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as told:
        check_texts(PromptTexts(path=str(tmp_path / name)))
    assert f"{tmp_path / name}" in str(told.value)
    assert expected in str(told.value)


def test_outputs_as_long_as_answers_need_answers(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n')
    check_texts(PromptTexts(path=f"{tmp_path}/a.jsonl"))
    with pytest.raises(ConfigError, match="record 2 has no answer"):
        check_texts(PromptTexts(path=f"{tmp_path}/a.jsonl", answers=True))


def test_each_line_of_a_text_file_is_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo words\n")
    assert [one.prompt for one in records_of(tmp_path / "a.txt", None)] == ["one", "two words"]


def test_a_list_in_one_file_is_read_as_lines_are(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"prompt": "one"}, {"prompt": "two"}]))
    assert [one.prompt for one in records_of(tmp_path / "a.json", None)] == ["one", "two"]
