"""The records of which prompts are made: a prompt and, where there is one, the answer that was recorded.

Files are checked before a run starts, and what makes tokens of them reads them with the same functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from llmexp.errors import ConfigError
from llmexp.inputs.files import check_place
from llmexp.inputs.instructions import ASSISTANT, PARQUET, SPEAKERS, USER, Message, conversation, shared_turns
from llmexp.serving.config.load import PromptTexts
from llmexp.serving.plan.lines import numbered_lines

KEY = "serve.texts.path"
JSON, TEXT = (".jsonl", ".ndjson", ".json"), (".txt",)
EXPECTED = "expected 'prompt' or 'text', alpaca's fields, 'messages' or 'conversations'"


class RecordedPrompts(NamedTuple):
    """A prompt as text, or as turns that a chat template writes; and the answer, empty where none was recorded."""

    prompt: str | tuple[Message, ...]
    answer: str = ""


def check_texts(texts: PromptTexts) -> None:
    """Read a file and raise ConfigError for the first wrong record; it is read again only after it has changed.

    A dataset, and a Parquet file where there is no pyarrow, are read by what makes tokens of them.
    """
    check_place(KEY, texts.path)
    path = Path(texts.path).expanduser()
    if is_file_of_records(path) and (path.suffix != PARQUET or find_spec("pyarrow")):
        state = path.stat()
        _check(path, texts.field, texts.answers, state.st_size, state.st_mtime_ns)


def is_file_of_records(path: Path) -> bool:
    """Tell whether a path is a file that `records_of` reads; raises ConfigError for a file of another kind."""
    if not path.is_file():
        return False
    if path.suffix not in (*JSON, *TEXT, PARQUET):
        raise ConfigError(f"{KEY}={path}: expected a file of {', '.join((*JSON, PARQUET, *TEXT))}")
    return True


def records_of(path: Path, field: str | None) -> Iterator[RecordedPrompts]:
    """Yield the records of a file; raises ConfigError with file and line, or row, for the first wrong one."""
    for number, record in _read(path):
        try:
            yield recorded(record, field)
        except ValueError as error:
            raise ConfigError(f"{KEY}: {path}:{number}: {error}") from None


def recorded(record: object, field: str | None) -> RecordedPrompts:
    """Return the prompt and the answer of a record; raises ValueError, which says what is expected."""
    if isinstance(record, str):
        return RecordedPrompts(record)
    if not isinstance(record, Mapping):
        raise ValueError(f"{EXPECTED} in an object, not {type(record).__name__}")
    if field:
        return RecordedPrompts(_text(record, field), _answer(record))
    if isinstance(record.get("prompt"), Sequence) and not isinstance(record["prompt"], str):
        *asked, answer = conversation(record)
        return RecordedPrompts(tuple(asked), answer.content)
    if (name := next((name for name in ("prompt", "text") if record.get(name) is not None), None)) is not None:
        return RecordedPrompts(_text(record, name), _answer(record))
    if record.get("conversations") is not None:
        return _shared(record["conversations"])
    if record.get("messages") is None and record.get("instruction") is None:
        raise ValueError(f"{EXPECTED}, not only {', '.join(map(str, record)) or 'nothing'}")
    *asked, answer = conversation(record)
    return RecordedPrompts(tuple(asked), answer.content)


@cache
def _check(path: Path, field: str | None, answers: bool, _size: int, _changed_ns: int) -> None:
    count = 0
    for count, one in enumerate(records_of(path, field), 1):
        if answers and not one.answer:
            raise ConfigError(
                f"{KEY}: {path}: record {count} has no answer, and serve.texts.answers=true asks for its length: "
                "leave it out, or set serve.output"
            )
    if not count:
        raise ConfigError(f"{KEY}: {path} has no records: {EXPECTED} in each line")


def _read(path: Path) -> Iterator[tuple[int, object]]:
    if path.suffix in TEXT:
        yield from numbered_lines(path, KEY)
    elif path.suffix == PARQUET:
        yield from _parquet(path)
    elif path.suffix == ".json" and (text := _whole(path)).lstrip()[:1] == "[":
        yield from enumerate(_parsed(text, path, 1), 1)
    else:
        yield from ((number, _parsed(line, path, number)) for number, line in numbered_lines(path, KEY))


def _whole(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{KEY}={path}: cannot be read as text: {error}") from None


def _parquet(path: Path) -> Iterator[tuple[int, object]]:
    import pyarrow.parquet  # comes with MLflow and with datasets; llmexp plans without it

    with pyarrow.parquet.ParquetFile(path) as table:
        yield from enumerate((row for batch in table.iter_batches() for row in batch.to_pylist()), 1)


def _parsed(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ConfigError(f"{KEY}: {path}:{line}: its values are nested too deeply") from None
    except json.JSONDecodeError as error:
        place = f"{path}:{line + error.lineno - 1}"
        raise ConfigError(f"{KEY}: {place}: not JSON: {error.msg} at column {error.colno}") from None


def _shared(turns: object) -> RecordedPrompts:
    """Take the first question and its answer of a record of ShareGPT's."""
    said = [(SPEAKERS.get(str(turn.get("from"))), turn.get("value")) for turn in shared_turns(turns)]
    question = next((place for place, (role, text) in enumerate(said) if role == USER and text), None)
    if question is None:
        raise ValueError("conversations: expected a turn with 'from': 'human' and a text as 'value'")
    role, answer = said[question + 1] if question + 1 < len(said) else (None, "")
    return RecordedPrompts((Message(USER, str(said[question][1])),), str(answer or "") if role == ASSISTANT else "")


def _answer(record: Mapping[str, Any]) -> str:
    names = ("completion", "output", "response", "answer")
    return next((record[name] for name in names if isinstance(record.get(name), str)), "")


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name}: expected a text, not {'nothing' if not value else type(value).__name__}")
    return value
