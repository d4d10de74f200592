"""The commands that repeat runs, with the words that they share written once."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_PROGRAM_WORDS = 3
# A column of every table of training shows what it is.
_METHOD = "method="

# It says where the records went, which is nobody else's place for them.
_PLACE = "sweep.outputs="


def anywhere(command: str) -> str:
    """Return the command without the word that says where the records went, for tables that others read."""
    words = shlex.split(command)
    kept = [word for word in words if not word.startswith(_PLACE)]
    return command if kept == words else shlex.join(kept)


def repeat_lines(commands: Sequence[str], first: int = 1) -> list[str]:
    """Return lines that say how to repeat each run, numbered from `first`.

    Where all commands start the same program and give each key once, so that the order of words has no meaning, the
    shared words stand in one line and each run has only the words to add, or no line where that is its method, which
    the table shows. Other commands stand in full.
    """
    split = [shlex.split(command) for command in commands]
    if len(split) < 2 or not _order_is_free(split):
        return [f"#{number:<3} {command}" for number, command in enumerate(commands, first)]
    shared = [word for word in split[0] if all(word in words for words in split)]
    own = [shlex.join(word for word in words if word not in shared) for words in split]
    if all(words.startswith(_METHOD) and " " not in words for words in own):
        return [f"to repeat a run, add its method, such as {own[0]}: {shlex.join(shared)}"]
    return [
        f"to repeat a run, add its words: {shlex.join(shared)}",
        *(f"#{number:<3} {words or '(no more words)'}" for number, words in enumerate(own, first)),
    ]


def _order_is_free(split: Sequence[list[str]]) -> bool:
    programs = {tuple(words[:_PROGRAM_WORDS]) for words in split}
    overrides = [words[_PROGRAM_WORDS:] for words in split]
    keys = [[word.partition("=")[0].lstrip("+~") for word in words if "=" in word] for words in overrides]
    return (
        len(programs) == 1
        and all(len(set(found)) == len(found) for found in keys)
        and all(len(found) == len(words) for found, words in zip(keys, overrides, strict=True))
    )
