"""Instruction records as sequences, in which the model learns only the answers with their ends."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from llmexp.errors import ConfigError
from llmexp.inputs.instructions import ASSISTANT, Conversation, conversation, files_of, read
from llmexp.launchers.data.corpus import hf_dataset
from llmexp.launchers.data.sequences import IGNORED, Example, Sequences, packed
from llmexp.launchers.data.text_files import library_modules
from llmexp.launchers.data.tokenizers import Template, Tokenizer
from llmexp.training.config import InstructionsData

Piece = tuple[list[int], bool]
_QUESTION = "What does this function do?"
_RECORDS = 400
# Characters of a function without its docstring.
# Most records then have 100 to 500 bytes, as uneven as real instructions are.
_LONGEST_FUNCTION = 400


@dataclass
class Read:
    """Counts of the records read so far: all, those cut to seq_len, those left out because no answer fits."""

    records: int = 0
    cut: int = 0
    left_out: int = 0


def load(data: InstructionsData, encode: Tokenizer, number: int, seed: int) -> Sequences:
    """Make at most `number` sequences of records in an order that the seed fixes; raise ConfigError for wrong data."""
    records, read = conversations(data), Read()
    random.Random(seed).shuffle(records)
    fitting = _fitting((example(record, encode, data.tokenizer) for record in records), data.seq_len, read)
    rows = packed(fitting, data.seq_len) if data.pack else ([one] for one in fitting)
    made = Sequences.of_rows(list(islice(rows, number)), data.seq_len, isolated=data.pack)
    made.records = len(records) - read.left_out
    made.what_was_read = {
        "data_cut_records": read.cut,
        "data_left_out_records": read.left_out,
        "data_read_records": read.records,
    }
    return made


def conversations(data: InstructionsData) -> list[Conversation]:
    """Return all records of the data section; raise ConfigError for the first that is wrong."""
    if data.path:
        return [_of_dataset(record, row, data) for row, record in enumerate(hf_dataset(data.path, data.split))]
    return [record for path in files_of(data.files) for record in read(path)] if data.files else _own_set()


def example(turns: Conversation, encode: Tokenizer, name: str) -> Example:
    """Tokenize a record, by the tokenizer's own chat template where it has one; `name` is for errors."""
    pieces = list(_by_template(turns, encode, encode.template, name) if encode.template else _plain(turns, encode))
    ids = [token for tokens, _ in pieces for token in tokens]
    labels = [token if learned else IGNORED for tokens, learned in pieces for token in tokens]
    # Nothing precedes the first token, so it is not predicted; the same holds within a packed row.
    return Example(ids, [IGNORED, *labels[1:]])


def _plain(turns: Conversation, encode: Tokenizer) -> Iterator[Piece]:
    """Write each turn under the name of its role."""
    yield [*encode.begin], False
    for role, content in turns:
        if role == ASSISTANT:
            yield encode.encode(f"{role}:\n"), False
            yield [*encode.encode(content), *encode.end], True
        else:
            yield encode.encode(f"{role}:\n{content}\n"), False


def _by_template(turns: Conversation, encode: Tokenizer, template: Template, name: str) -> Iterator[Piece]:
    """Mark as learned what the template adds with each answer, and as not learned what it adds before."""
    done = ""
    for place, turn in enumerate(turns):
        if turn.role == ASSISTANT:
            asked = template(turns[:place], answer_begins=True)
            answered = template(turns[: place + 1], answer_begins=False)
            if not (asked.startswith(done) and answered.startswith(asked)):
                raise ConfigError(
                    f"data.tokenizer={name}: its chat template rewrites earlier turns when another follows, so the "
                    f"answers cannot be located: use records of one question and one answer, or data.tokenizer=bytes"
                )
            yield encode.encode(asked[len(done) :]), False
            yield encode.encode(answered[len(asked) :]), True
            done = answered


def _fitting(examples: Iterable[Example], seq_len: int, read: Read) -> Iterator[Example]:
    for one in examples:
        cut = Example(one.ids[:seq_len], one.labels[:seq_len])
        learned = any(label != IGNORED for label in cut.labels)
        read.records += 1
        read.cut += learned and len(one.ids) > seq_len
        read.left_out += not learned
        if learned:
            yield cut


def _of_dataset(record: object, row: int, data: InstructionsData) -> Conversation:
    try:
        return conversation(record)
    except ValueError as error:
        raise ConfigError(f"data.path={data.path}, row {row} of split {data.split}: {error}") from None


def _own_set() -> list[Conversation]:
    """Return the first records in the order of the files; they are the same for one version of Python."""
    return list(islice(_records(), _RECORDS))


def _records() -> Iterator[Conversation]:
    for path in library_modules():
        source = path.read_text(encoding="utf-8", errors="replace")
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and (said := ast.get_docstring(node)) and len(node.body) > 1:
                code = _without_docstring(node, lines)
                sentence = " ".join(said.partition("\n\n")[0].split())
                if len(code) <= _LONGEST_FUNCTION and sentence:
                    yield conversation({"instruction": _QUESTION, "input": code, "output": sentence})


def _without_docstring(node: ast.FunctionDef, lines: list[str]) -> str:
    docstring = node.body[0]
    return "".join(lines[node.lineno - 1 : docstring.lineno - 1] + lines[docstring.end_lineno : node.end_lineno])
