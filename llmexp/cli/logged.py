"""Text that commands print becomes records of Python's logging where llmexp is used as a library."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import TextIOBase
from typing import TextIO, cast

from llmexp.record.reading import plain

LOGGER = logging.getLogger("llmexp")
LOGGER.addHandler(logging.NullHandler())  # silent, unless the program asks for logs
_WARNING = "llmexp: "


class Logged(TextIOBase):
    """A text stream whose lines are logged: lines that begin with `llmexp:` as warnings, others as information.

    `stream` takes what a handler of the program's own writes while a line is logged.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._line, self._logs = stream, "", False

    def write(self, text: str) -> int:
        """Log every line that is complete."""
        if self._logs:
            return self._stream.write(text)
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._log(line)
        return len(text)

    def end(self) -> None:
        """Log what was not ended by a line end."""
        rest, self._line = self._line, ""
        self._log(rest)

    def _log(self, line: str) -> None:
        shown = plain(line).rstrip()
        if not shown:
            return
        self._logs = True
        try:
            level = logging.WARNING if shown.startswith(_WARNING) else logging.INFO
            LOGGER.log(level, "%s", shown.removeprefix(_WARNING))
        finally:
            self._logs = False


@contextmanager
def logged() -> Iterator[None]:
    """Log what is printed within the block, by whichever thread of the process."""
    out, err = Logged(sys.stdout), Logged(sys.stderr)
    try:
        with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
            yield
    finally:
        out.end()
        err.end()
