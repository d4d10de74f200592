"""Records of instructions: both kinds are read from every kind of file, and a wrong one is said by file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.inputs import instructions
from llmexp.inputs.instructions import Message, conversation
from llmexp.serving.plan.prompt_texts import recorded

ALPACA = {"instruction": "Add.", "input": "1 2", "output": "3"}
CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
    ]
}
BOTH = [
    (Message("user", "Add.\n\n1 2"), Message("assistant", "3")),
    (Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Ho")),
]


def lines(path: Path, *records: object) -> Path:
    path.write_text("".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records))
    return path


def check(pattern: Path) -> None:
    instructions.check(instructions.files_of([str(pattern)]))


def test_alpaca_fields_and_messages_are_read_from_lines_and_from_a_list(tmp_path: Path) -> None:
    jsonl = lines(tmp_path / "a.jsonl", ALPACA, "", CHAT)
    whole = tmp_path / "b.json"
    whole.write_text(json.dumps([ALPACA, CHAT], indent=1))
    assert list(instructions.read(jsonl)) == list(instructions.read(whole)) == BOTH
    assert conversation({"instruction": "Go", "input": "", "output": "Gone"})[0] == Message("user", "Go")


def test_the_records_of_trl_and_of_sharegpt_are_read_and_serving_reads_them_alike() -> None:
    asked, given = Message("user", "Hi"), Message("assistant", "Ho")
    brief = Message("system", "Be brief.")
    turns = [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]
    texts = {"prompt": "Hi", "completion": "Ho"}
    chat = {"prompt": CHAT["messages"][:2], "completion": CHAT["messages"][2:]}
    assert conversation(texts) == (asked, given)
    assert conversation(chat) == conversation({"conversations": turns}) == (brief, asked, given)
    assert recorded(texts, None) == ("Hi", "Ho")
    assert recorded(chat, None) == recorded(CHAT, None) == ((brief, asked), "Ho")
    assert recorded({"conversations": turns}, None) == ((asked,), "Ho")


def test_parquet_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name, record in (("alpaca", ALPACA), ("chat", CHAT)):
        parquet.write_table(pyarrow.Table.from_pylist([record]), tmp_path / f"{name}.parquet")
    assert [record for path in instructions.files_of([str(tmp_path)]) for record in instructions.read(path)] == BOTH
    parquet.write_table(pyarrow.Table.from_pylist([ALPACA, ALPACA | {"output": ""}]), tmp_path / "wrong.parquet")
    with pytest.raises(ConfigError, match=r"wrong\.parquet:2: output is empty"):
        check(tmp_path / "wrong.parquet")


def messages(*turns: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ('{"instruction": "Add.", "output": }', "not JSON: Expecting value at column 35"),
        (
            {"text": "Hi"},
            "expected 'instruction' and 'output' .* 'messages', or ShareGPT's 'conversations', not only text",
        ),
        ({"prompt": "Hi"}, "not only prompt"),
        ({"prompt": "Hi", "completion": " "}, "completion is empty"),
        ({"prompt": "Hi", "completion": [{"role": "assistant", "content": "Ho"}]}, "expected two texts, or two lists"),
        ({"prompt": 3, "completion": 4}, "expected two texts, or two lists"),
        ({"conversations": ["Hi"]}, "expected a list of objects with 'from' and 'value'"),
        ({"conversations": [{"from": "tool", "value": "Hi"}]}, "conversations: role 'tool'"),
        ("[1]", "in an object, not list"),
        (ALPACA | {"output": " "}, "output is empty"),
        (ALPACA | {"output": None}, "output: expected a text, not nothing"),
        (ALPACA | {"input": 3}, "input: expected a text, not int"),
        ({"messages": "Hi"}, "expected a list of objects with 'role' and 'content'"),
        (messages(("user", "Hi"), ("bot", "Ho")), "role 'bot': expected one of system, user, assistant"),
        (messages(("user", "Hi"), ("assistant", "")), "content is empty"),
        (messages(("user", "Hi")), "at the end an answer of the assistant, not only user"),
        (
            messages(("assistant", "Hi"), ("user", "Ho")),
            "at the end an answer of the assistant, not only assistant, user",
        ),
    ],
)
def test_a_wrong_record_is_said_by_file_and_line(tmp_path: Path, record: object, said: str) -> None:
    path = lines(tmp_path / "mine.jsonl", ALPACA, "", record, CHAT)
    with pytest.raises(ConfigError, match=rf"^data\.files: {path}:3: .*{said}"):
        check(path)


def test_a_wrong_list_is_said_by_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([ALPACA, CHAT], indent=1).replace("Hi", '"Hi'))
    with pytest.raises(ConfigError, match=r"a\.json:15: not JSON"):
        check(path)


def test_files_that_hold_no_text_or_nothing_are_named(tmp_path: Path) -> None:
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "notes.txt").write_text("no records")
    with pytest.raises(ConfigError, match=r"bytes\.jsonl: 'utf-8'"):
        check(tmp_path)
    with pytest.raises(ConfigError, match=r"empty\.jsonl has no records"):
        check(tmp_path / "empty.jsonl")
    with pytest.raises(ConfigError, match="nothing matches"):
        check(tmp_path / "none*.jsonl")


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = lines(tmp_path / "a.jsonl", ALPACA), []
    monkeypatch.setattr(instructions, "conversation", lambda record: read.append(record) or record)
    check(path)
    check(path)
    assert len(read) == 1
    lines(path, ALPACA, CHAT)
    check(path)
    assert len(read) == 3
