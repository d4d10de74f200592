"""A reader of instruction records, which names file and line of a wrong one.

Records are checked before a run starts, and its ranks read them with the same functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from llmexp.errors import ConfigError
from llmexp.inputs.files import matching

USER, ASSISTANT = "user", "assistant"
ROLES = ("system", USER, ASSISTANT)
PARQUET = ".parquet"
SUFFIXES = (".jsonl", ".json", ".ndjson", PARQUET)
EXPECTED = (
    "expected 'instruction' and 'output' (with 'input' or without), 'prompt' and 'completion', 'messages', or "
    "ShareGPT's 'conversations'"
)
# The speakers of ShareGPT's records, as vLLM, TRL and others read them.
SPEAKERS = {"human": USER, "user": USER, "gpt": ASSISTANT, "assistant": ASSISTANT, "system": "system"}


class Message(NamedTuple):
    """One turn of a conversation: the speaker, one of ROLES, and the text."""

    role: str
    content: str


Conversation = tuple[Message, ...]


def conversation(record: object) -> Conversation:
    """Turn a record of one of the kinds in EXPECTED into turns, of which the last is the assistant's.

    Raise ValueError, which says what is expected, for any other record.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"{EXPECTED} in an object, not {type(record).__name__}")
    if record.get("messages") is not None:
        return _chat(record["messages"], "messages")
    if record.get("conversations") is not None:
        return _chat([*map(_as_message, shared_turns(record["conversations"]))], "conversations")
    if record.get("prompt") is not None and record.get("completion") is not None:
        return _completed(record)
    if record.get("instruction") is None:
        raise ValueError(f"{EXPECTED}, not only {', '.join(map(str, record)) or 'nothing'}")
    asked, given = _text(record, "instruction"), record.get("input") or ""
    if not isinstance(given, str):
        raise ValueError(f"input: expected a text, not {type(given).__name__}")
    return Message(USER, f"{asked}\n\n{given}" if given else asked), Message(ASSISTANT, _text(record, "output"))


def shared_turns(turns: object) -> list[Mapping[str, Any]]:
    """Return the turns of a record of ShareGPT's; raises ValueError where they are none."""
    if not isinstance(turns, Sequence) or not all(isinstance(turn, Mapping) for turn in turns):
        raise ValueError("conversations: expected a list of objects with 'from' and 'value'")
    return list(turns)


def files_of(patterns: Sequence[str]) -> list[Path]:
    """Return the record files that the patterns name; raise ConfigError for a pattern that matches nothing."""
    return matching(patterns, SUFFIXES)


def read(path: Path) -> Iterator[Conversation]:
    """Yield the records of a JSONL file, a JSON file with one list, or a Parquet file.

    Raise ConfigError with file and line for the first wrong record.
    """
    try:
        for number, record in _parquet(path) if path.suffix == PARQUET else _json(path):
            yield _conversation(record, path, number)
    except (ValueError, OSError) as error:
        raise ConfigError(f"data.files: {path}: {error}") from None


def check(paths: Iterable[Path]) -> None:
    """Read all files and raise ConfigError for the first wrong record; a file is read again only after it has changed.

    Without pyarrow, Parquet files are left for the ranks to check.
    """
    for path in paths:
        state = path.stat()
        _check(path, state.st_size, state.st_mtime_ns)


@cache
def _check(path: Path, _size: int, _changed_ns: int) -> None:
    if (path.suffix != PARQUET or find_spec("pyarrow")) and not sum(1 for _ in read(path)):
        raise ConfigError(f"data.files: {path} has no records: {EXPECTED} in each line")


def _as_message(turn: Mapping[str, Any]) -> dict[str, Any]:
    speaker = turn.get("from")
    return {"role": SPEAKERS.get(str(speaker), speaker), "content": turn.get("value")}


def _completed(record: Mapping[str, Any]) -> Conversation:
    """Return the turns of TRL's two kinds of prompt and completion: both are texts, or both are messages."""
    prompt, completion = record["prompt"], record["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        return Message(USER, _text(record, "prompt")), Message(ASSISTANT, _text(record, "completion"))
    if isinstance(prompt, str) or isinstance(completion, str):
        raise ValueError("prompt and completion: expected two texts, or two lists of messages")
    try:
        return _chat([*prompt, *completion], "prompt and completion")
    except TypeError:
        raise ValueError("prompt and completion: expected two texts, or two lists of messages") from None


def _chat(messages: object, name: str) -> Conversation:
    if (
        not isinstance(messages, Sequence)
        or not messages
        or not all(isinstance(message, Mapping) for message in messages)
    ):
        raise ValueError(f"{name}: expected a list of objects with 'role' and 'content'")
    odd = next((message.get("role") for message in messages if message.get("role") not in ROLES), None)
    if odd is not None or any("role" not in message for message in messages):
        raise ValueError(f"{name}: role {odd!r}: expected one of {', '.join(ROLES)}")
    turns = tuple(Message(message["role"], _text(message, "content")) for message in messages)
    if len(turns) < 2 or turns[-1].role != ASSISTANT:
        said = ", ".join(turn.role for turn in turns)
        raise ValueError(f"{name}: expected a question and at the end an answer of the {ASSISTANT}, not only {said}")
    return turns


def _text(record: Mapping[str, Any], field: str) -> str:
    value = record.get(field)
    if not isinstance(value, str):
        raise ValueError(f"{field}: expected a text, not {'nothing' if value is None else type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{field} is empty: expected a text")
    return value


def _conversation(record: object, path: Path, number: int) -> Conversation:
    try:
        return conversation(record)
    except ValueError as error:
        raise _wrong(path, number, error) from None


def _wrong(path: Path, number: int, why: object) -> ConfigError:
    return ConfigError(f"data.files: {path}:{number}: {why}")


def _json(path: Path) -> Iterator[tuple[int, object]]:
    """Yield each record with its line number, or with its place in the list where the file is one list."""
    with path.open(encoding="utf-8") as file:
        whole = path.suffix == ".json" and file.read(1) == "["
        file.seek(0)
        if whole:
            yield from enumerate(_parsed(file.read(), path, 1), start=1)
            return
        yield from ((number, _parsed(line, path, number)) for number, line in enumerate(file, start=1) if line.strip())


def _parsed(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise _wrong(path, line, "its values are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _wrong(
            path,
            line + error.lineno - 1,
            f"not JSON: {error.msg} at column {error.colno}; {EXPECTED} in one object a line",
        ) from None


def _parquet(path: Path) -> Iterator[tuple[int, object]]:
    import pyarrow.parquet  # comes with MLflow and with datasets; llmexp plans without it

    with pyarrow.parquet.ParquetFile(path) as table:
        rows = (row for batch in table.iter_batches() for row in batch.to_pylist())
        yield from enumerate(rows, start=1)
