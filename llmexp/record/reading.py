"""What a run's folder holds, which somebody else may have made: read without waiting, to a limit, and shown without what a terminal obeys."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

LARGEST_BYTES = 2**28
# Samples and events have a line a step or more; a million steps take a third of this.
LONGEST_LINES_BYTES = 2**30
# Colours and line ends stay; so do letters of every script, but for the signs that turn their order round.
_OBEYED = re.compile(r"\x1b\[[\d;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# By which a spreadsheet takes a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class OddFileError(ValueError):
    """A file that no llmexp has left so."""


def read_text(path: Path, largest_bytes: int = LARGEST_BYTES) -> str:
    """Read a regular file of that size at most; raises OddFileError for any other, a pipe, on which reading would wait, among them, and OSError."""
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest_bytes:
            raise OddFileError(f"it has {size} bytes, more than {largest_bytes}")
        return file.read().decode()


def _opened(path: Path) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OddFileError("it is a link to itself") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OddFileError("it is no regular file")
    return open(descriptor, "rb")


def read_json(path: Path) -> Any:
    """Read a JSON file; raises ValueError for one that is none, or whose values lie in each other too deeply, and OSError."""
    return parsed(read_text(path))


def parsed(text: str) -> Any:
    """Read JSON; raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise OddFileError("its values lie in each other too deeply") from None


def plain(text: str) -> str:
    """The text without the signs that a terminal obeys, each of them a question mark."""
    return _OBEYED.sub(lambda found: found[0] if found[0].endswith("m") else "?", text)


def as_cell(value: Any) -> Any:
    """A value for a spreadsheet; what it would compute becomes a text."""
    if not isinstance(value, str):
        return value
    return f"'{plain(value)}" if value.startswith(_FORMULA) else plain(value)
