"""Numbers that stand for texts and threads, as long as there are not more than a profiler writes."""

from __future__ import annotations

from typing import Any

# More would take more memory or time than there is.
MOST_LANES, MOST_TEXT_BYTES = 2**14, 2**28


class TooManyError(Exception):
    """An error: there are more different texts or threads than a profiler writes."""


class Numbering(dict[Any, int]):
    """Gives each new key, a text, texts or a lane, the next number; raises TooManyError, which says what they are."""

    def __init__(self, what: str) -> None:
        self._what, self._bytes = what, 0

    def __missing__(self, key: Any) -> int:
        """Give the key its number; raises TypeError where a name is no text."""
        if self._what == "names" and not isinstance(key, str):
            raise TypeError
        texts = (key,) if isinstance(key, str) else [part for part in key if isinstance(part, str | bytes)]
        self._bytes += sum(map(len, texts))
        if self._bytes > MOST_TEXT_BYTES or (self._what == "threads" and len(self) >= MOST_LANES):
            raise TooManyError(self._what)
        self[key] = number = len(self)
        return number
