"""Notes to single cells, which name them by letters."""

from __future__ import annotations

from string import ascii_lowercase


class Notes:
    """Each text has one letter, in the order in which cells first name it; after z comes aa."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def mark(self, *texts: str) -> str:
        """Return what stands behind a figure, such as ' (a, c)'; nothing without a text."""
        letters = [self._letters.setdefault(text, _letter(len(self._letters))) for text in texts if text]
        return f" ({', '.join(letters)})" if letters else ""

    @property
    def lines(self) -> list[str]:
        """The texts that were marked, by letter."""
        return [f"({letter}) {text}" for text, letter in self._letters.items()]


def _letter(number: int) -> str:
    before, own = divmod(number, len(ascii_lowercase))
    return (ascii_lowercase[before - 1] if before else "") + ascii_lowercase[own]
