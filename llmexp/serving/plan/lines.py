"""The lines of a text file that may be of any size, or no text at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llmexp.errors import ConfigError
from llmexp.inputs.files import check_regular

# A line of Mooncake's trace with a million tokens has 2,000 block ids, below 20 kB.
LINE_BYTES = 2**20


def numbered_lines(path: Path, key: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not blank with its number, without its end; no more than one line is held.

    Raises ConfigError, which begins with the configuration's key, for a file or line that cannot be read.
    """
    check_regular(key, path)
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(LINE_BYTES + 1):
                number += 1
                if text := _text(raw, f"{key}: {path}:{number}"):
                    yield number, text
    except OSError as error:
        raise ConfigError(f"{key}={path}: cannot be read: {error.strerror}") from None


def _text(raw: bytes, place: str) -> str:
    if len(raw) > LINE_BYTES:
        raise ConfigError(f"{place}: the line has more than {LINE_BYTES} bytes: is it a text file?")
    try:
        # Some programs begin a text with a mark of its byte order.
        return raw.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{place}: no UTF-8: is it a text file?") from None
