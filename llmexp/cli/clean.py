"""Cleaning of what commands print, because folders may hold any text and a terminal obeys control characters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from llmexp.record.reading import plain


class Plain:
    """A text stream that passes on only visible text and colors."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text after `plain` has cleaned it."""
        return self._stream.write(plain(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def plainly(out: TextIO, err: TextIO) -> Iterator[None]:
    """Clean everything that is printed inside this context."""
    with redirect_stdout(cast(TextIO, Plain(out))), redirect_stderr(cast(TextIO, Plain(err))):
        yield
