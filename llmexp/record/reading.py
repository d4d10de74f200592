"""Safe reading of a run's folder, which another person may have made.

Files are read without waiting and up to a size limit, and texts are shown without control characters for a terminal.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json

LARGEST_BYTES = 2**28
# Samples and events have one line or more per step; a million steps take a third of this.
LONGEST_LINES_BYTES = 2**30
_LEAST_READ_BYTES = 2**16
# The characters that a terminal obeys, those that reverse the direction of text too, and colors, which `plain` keeps.
# Line ends and the letters of every script are not among them.
_OBEYED = re.compile(r"\x1b\[[\d;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class OddFileError(ValueError):
    """The error for a file that no version of llmexp leaves like this."""


def read_text(path: Path | str, largest_bytes: int = LARGEST_BYTES) -> str:
    """Read a regular file of at most that size; raises OddFileError for any other file, and OSError.

    A pipe is refused too, because reading it would wait.
    """
    descriptor = _opened(path)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OddFileError("it is not a regular file")
        if found.st_size > largest_bytes:
            raise OddFileError(f"it has {found.st_size} bytes, more than {largest_bytes}")
        return _content(descriptor, found.st_size).decode()
    finally:
        os.close(descriptor)


def _opened(path: Path | str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OddFileError("it is a link to itself") from None
        raise


def _content(descriptor: int, size: int) -> bytes:
    """Read to the end, which is elsewhere than the size says where the file is still written to."""
    parts = []
    while part := os.read(descriptor, max(size + 1, _LEAST_READ_BYTES)):
        parts.append(part)
    return b"".join(parts)


def read_json(path: Path) -> Any:
    """Read a JSON file; raises ValueError where it is not JSON or its values are nested too deeply, and OSError."""
    return parsed(read_text(path))


def parsed(text: str) -> Any:
    """Parse JSON; raises ValueError where the text is not JSON or its values are nested too deeply."""
    try:
        return from_json(text)
    except ValueError:
        pass  # Python's own parser takes longer, allows a little more, and its messages say more
    try:
        return json.loads(text)
    except RecursionError:
        raise OddFileError("its values are nested too deeply") from None


def plain(text: str) -> str:
    """Replace each character that controls a terminal with a question mark; colors are kept."""
    return _OBEYED.sub(lambda found: found[0] if found[0].endswith("m") else "?", text)


def as_cell(value: Any) -> Any:
    """Return a value for a spreadsheet; a text that would be taken for a formula is quoted."""
    if not isinstance(value, str):
        return value
    return f"'{plain(value)}" if value.startswith(_FORMULA) else plain(value)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a JSONL file that may still be written to; raises OddFileError, OSError.

    A missing file yields nothing, and lines that were cut off are left out.
    """
    if not path.exists():
        return
    for line in read_text(path, LONGEST_LINES_BYTES).splitlines():
        try:
            yield parsed(line)
        except ValueError:
            continue
