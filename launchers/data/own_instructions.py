"""A built-in instruction set: functions of the running Python's library, explained by their docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from llmexp.inputs.instructions import Conversation, conversation
from llmexp.launchers.data.corpus import library_modules

QUESTION = "What does this function do?"
RECORDS = 400
# Characters of a function without its docstring.
# Most records then have 100 to 500 bytes, as uneven as real instructions are.
LONGEST_FUNCTION = 400


def own_set() -> list[Conversation]:
    """Return the first records in the order of the files; they are the same for one version of Python."""
    return list(islice(_records(), RECORDS))


def _records() -> Iterator[Conversation]:
    for path in library_modules():
        source = path.read_text(encoding="utf-8", errors="replace")
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and (said := ast.get_docstring(node)) and len(node.body) > 1:
                code = _without_docstring(node, lines)
                sentence = " ".join(said.partition("\n\n")[0].split())
                if len(code) <= LONGEST_FUNCTION and sentence:
                    yield conversation({"instruction": QUESTION, "input": code, "output": sentence})


def _without_docstring(node: ast.FunctionDef, lines: list[str]) -> str:
    docstring = node.body[0]
    return "".join(lines[node.lineno - 1 : docstring.lineno - 1] + lines[docstring.end_lineno : node.end_lineno])
